"""The paper's protocol on a target folder: fixed reference sets, all methods, resumable, in one or more processes."""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from ...data.catalogue import Catalogue
from ...data.feature_cache import encode_records
from ...data.records import load_records
from ...data.reference_sets import ReferenceSet, draw_references, read_references, write_references
from ...data.setups import Setup
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...training.encoder import BackboneEncoder
from ...version import __version__
from ..methods.context import METHODS
from ..report.markdown_report import write_tables
from ..report.pictures import draw_pictures
from .reference_set_scores import IDEAL, Workbench, evaluate_unit
from .results import by_setup, difficulties, join_parts, part_of, write_json

FORMAT = 2  # of a part; another way of computing needs another number, or old parts would be taken for new ones
ROTATIONS = 8


@dataclass
class Evaluation:
    """What to measure, on what; `run` does it.

    Args:
        model: with a trained head for the method `"ideal"`; any for the others.
        processor: of the model.
        target: folder of the target data set.
        out: folder for `results.json`, `tables.md`, `references.json` and the parts that make a run resumable.
        cache: folder of the feature cache.
        layout: of the target.
        setups: for example `["N1A1", "N4A1"]`.
        seeds: one reference set a category for each.
        settings: `"general"`, `"hard"`.
        methods: `"ideal"`, keys of `METHODS` and of `others`.
        others: further models on the same backbone as methods, by name: ablations, other forms of the score.
        references: a file of reference sets to repeat, instead of drawing them.
        smoothing: of anomaly maps, in pixels.
        command: how to repeat it, kept in the result.
        pictures: draw montages, curves and deviations of the first seed into `out / "pictures"`.
    """

    model: IdealModel
    processor: IdealImageProcessor
    target: Path
    out: Path
    cache: Path
    layout: str = "auto"
    setups: Sequence[str] = ("N1A1", "N2A1", "N4A1", "N8A4")
    seeds: Sequence[int] = (0, 1, 2)
    settings: Sequence[str] = ("general", "hard")
    methods: Sequence[str] = (IDEAL,)
    others: Mapping[str, IdealModel] = field(default_factory=dict)
    references: Path | None = None
    smoothing: float = 4.0
    command: str = ""
    pictures: bool = False
    encoder: BackboneEncoder = field(init=False)

    def __post_init__(self) -> None:
        self.methods = list(dict.fromkeys(self.methods))  # one named twice would be scored twice
        known = [IDEAL, *METHODS, *self.others]
        unknown = sorted(set(self.methods) - set(known))
        if unknown or not self.methods:
            raise ValueError(f"methods: expected some of {known}, got {unknown or 'none'}")
        if not self.seeds or not self.setups:
            raise ValueError(f"expected at least one seed and one set-up, got {self.seeds} and {self.setups}")
        for setup in self.setups:
            Setup.parse(setup)
        if unknown := sorted(set(self.settings) - {"general", "hard"}):
            raise ValueError(f"settings: expected some of ['general', 'hard'], got {unknown}")
        self.encoder = BackboneEncoder(self.model, self.processor)
        for name, other in self.others.items():
            if name in (IDEAL, *METHODS):
                raise ValueError(f"expected a new name for another model, got {name!r}, which is a method already")
            if BackboneEncoder(other, self.processor).fingerprint != self.encoder.fingerprint:
                raise ValueError(f"{name}: expected a model on the backbone and stage of the first, got another")
            if other.config.patch_smoothing != self.model.config.patch_smoothing:
                raise ValueError(
                    f"{name}: expected the first model's patch_smoothing {self.model.config.patch_smoothing}, "
                    f"got {other.config.patch_smoothing}"
                )

    @property
    def _heads(self) -> dict[str, IdealModel]:
        """The models among the methods, by name."""
        return {name: head for name, head in {IDEAL: self.model, **self.others}.items() if name in self.methods}

    def run(self) -> dict[str, Any]:
        """Evaluate what is not there yet, and write the results; under `accelerate launch` processes share."""
        from accelerate import PartialState
        from accelerate.utils import parse_flag_from_env

        state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
        with state.main_process_first():
            records = load_records(self.target, self.layout)
        cache = encode_records(records, self.encoder, self.cache)
        catalogue = Catalogue.from_records(records)
        sets = self._reference_sets(catalogue)
        rotate = None
        if "rotated_normal_matching" in self.methods:
            images = records.select_columns(["image"])

            def rotate(indices: Sequence[int]) -> Tensor:
                return torch.cat([self._rotated_features(images[index]["image"]) for index in indices])

        bench = Workbench(
            cache, catalogue, self.methods, self.model, self._heads, rotate, self.smoothing, self.settings
        )
        (self.out / "parts").mkdir(parents=True, exist_ok=True)
        share = sets[state.process_index :: state.num_processes]
        for references in tqdm(share, desc="Evaluating", unit="set", disable=not state.is_local_main_process):
            missing = [method for method in self.methods if not self._part(references, method).exists()]
            if missing:
                unit = evaluate_unit(replace(bench, methods=missing), references)
                for method in missing:
                    write_json(self._part(references, method), part_of(unit, method))
        state.wait_for_everyone()
        results = self._results(sets)
        if state.is_main_process:
            write_references(self.out / "references.json", sets)
            write_json(self.out / "results.json", results)
            write_tables(self.out / "tables.md", [results])
        state.wait_for_everyone()
        if self.pictures and state.is_main_process:  # the others need not wait
            draw_pictures(bench, records, sets, self.out / "pictures", partial(self._key, methods=self.methods))
        return results

    def _reference_sets(self, catalogue: Catalogue) -> list[ReferenceSet]:
        if self.references is None:
            return [
                references
                for setup in self.setups
                for seed in self.seeds
                for references in draw_references(catalogue, setup, seed)
            ]
        wanted = [
            references
            for references in read_references(self.references)
            if references.setup in self.setups and references.seed in self.seeds
        ]
        if not wanted:
            raise ValueError(
                f"{self.references}: expected reference sets of {list(self.setups)} "
                f"and seeds {list(self.seeds)}, got none"
            )
        return wanted

    def _rotated_features(self, image: Image.Image) -> Tensor:
        """(turns, h, w, C) of a picture turned by eighths of a circle, corners filled by reflection."""
        array = np.asarray(image.convert("RGB"))
        height, width = array.shape[:2]
        padded = np.pad(array, ((height // 2,) * 2, (width // 2,) * 2, (0, 0)), mode="reflect")
        turned = []
        for turn in range(ROTATIONS):
            picture = Image.fromarray(padded).rotate(360 / ROTATIONS * turn, Image.Resampling.BICUBIC)
            left, top = width // 2, height // 2
            turned.append(picture.crop((left, top, left + width, top + height)))
        return torch.cat([self.encoder([picture]) for picture in turned]).cpu()

    def _part(self, references: ReferenceSet, method: str) -> Path:
        """Where one method's figures with one reference set are kept: a method that joins leaves the others' alone."""
        return self.out / "parts" / f"{self._key(references, [method])}.json"

    def _key(self, references: ReferenceSet, methods: Sequence[str]) -> str:
        """Names figures by all that decides them; a new head, which is random, is no part of that."""
        config = self.model.config
        heads = {name: [head.fingerprint, head.config.alignment] for name, head in self._heads.items()}
        models = {name: heads[name] for name in methods if name in heads}
        everything = [FORMAT, sorted(methods), sorted(self.settings), self.smoothing, asdict(references)]
        everything += [self.encoder.fingerprint, config.top_fraction, config.patch_smoothing, config.eraser, models]
        return hashlib.blake2b(json.dumps(everything, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _results(self, sets: Sequence[ReferenceSet]) -> dict[str, Any]:
        parts = [
            (references, join_parts({method: self._part(references, method) for method in self.methods}))
            for references in sets
        ]
        methods = {method: {"setups": by_setup(parts, method)} for method in self.methods}
        models = {name: head.fingerprint for name, head in self._heads.items()}
        results: dict[str, Any] = {
            "target": self.target.name,
            "command": self.command,
            "model": models.pop(IDEAL, None),
            "others": models,
            "encoder": self.encoder.fingerprint,
            "seeds": list(self.seeds),
            "smoothing": self.smoothing,
            "versions": {
                "modeling-ideal": __version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
            "difficulty": difficulties(parts),
            "methods": methods,
        }
        if IDEAL in methods:
            results["setups"] = methods[IDEAL]["setups"]
        return results
