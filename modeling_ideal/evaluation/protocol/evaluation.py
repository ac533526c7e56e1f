"""The paper's protocol on a target folder: fixed reference sets, all methods; resumable, in one or more processes."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from tqdm import tqdm

from ...data.catalogue import Catalogue
from ...data.feature_cache import encode_records
from ...data.records import load_records
from ...data.reference_sets import (
    ReferenceSet,
    draw_references,
    inference_episodes,
    read_references,
    write_references,
)
from ...data.setups import SETTINGS, Setup
from ...image_processing_ideal import IdealImageProcessor
from ...modeling_ideal import IdealModel
from ...training.encoder import BackboneEncoder, PoseEncoder
from ...training.rivals.rival import Rival
from ...version import __version__
from ...writing.files import write_json
from ..methods import IN_POSES, METHODS
from ..methods.normal_matching import POSES
from ..pictures.category_pictures import Album
from ..report.document import write_document
from ..results_file import IDEAL
from ..rival_method import RivalMethod
from .differences import differences_to_ideal, gains_of_eraser
from .identity import measurement_key
from .measurement import Measurement, measure, read_measurement
from .poses import Turn, encode_poses
from .scorer import Scorer
from .summary import difficulties, summaries

DIGITS = 12  # of a fingerprint, in a message


@dataclass
class Evaluation:
    """What to measure, and on what; `run` does it.

    Args:
        model: any model; with a trained head for the method `"ideal"`.
        processor: of the model.
        target: folder of the target data set.
        out: folder for `results.json`, `tables.md`, `references.json` and the measurements that make a run resumable.
        cache: folder of the feature cache.
        layout: layout of the target.
        setups: for example `["N1A1", "N4A1"]`.
        seeds: for each of them, one reference set per category.
        settings: `"general"`, `"hard"`.
        methods: `"ideal"`, keys of `METHODS`, of `others` and of `rivals`.
        others: further models on the same backbone as methods, by name: ablations, other forms of the score.
        rivals: trained rivals as methods, by name; made for the same features.
        references: a file of reference sets to use again, instead of drawing new ones.
        smoothing: standard deviation in pixels of the Gaussian over anomaly maps.
        command: the command that repeats the evaluation, kept in the results.
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
    settings: Sequence[str] = SETTINGS
    methods: Sequence[str] = (IDEAL,)
    others: Mapping[str, IdealModel] = field(default_factory=dict)
    rivals: Mapping[str, Rival] = field(default_factory=dict)
    references: Path | None = None
    smoothing: float = 4.0
    command: str = ""
    pictures: bool = False
    encoder: BackboneEncoder = field(init=False)

    def __post_init__(self) -> None:
        self.methods = list(dict.fromkeys(self.methods))  # one named twice would be scored twice
        known = [IDEAL, *METHODS, *self.others, *self.rivals]
        unknown = sorted(set(self.methods) - set(known))
        if unknown or not self.methods:
            raise ValueError(f"methods: expected some of {known}, got {unknown or 'none'}")
        if not self.seeds or not self.setups or not self.settings:
            given = f"{self.seeds}, {self.setups} and {self.settings}"
            raise ValueError(f"expected at least one seed, one set-up and one setting, got {given}")
        if not 0 <= self.smoothing <= self.model.config.image_size:
            raise ValueError(
                f"smoothing: expected pixels from 0 to the image size {self.model.config.image_size}, "
                f"got {self.smoothing}"
            )
        for setup in self.setups:
            Setup.parse(setup)
        if unknown := sorted(set(self.settings) - set(SETTINGS)):
            raise ValueError(f"settings: expected some of {list(SETTINGS)}, got {unknown}")
        self.encoder = BackboneEncoder(self.model, self.processor)
        self._check_models()

    def _check_models(self) -> None:
        for name in (*self.others, *self.rivals):
            if name in (IDEAL, *METHODS):
                raise ValueError(f"expected a new name for another model, got {name!r}, which is a method already")
        for name, rival in self.rivals.items():
            if rival.encoder != self.encoder.fingerprint:
                raise ValueError(
                    f"{name}: expected a rival that was trained on the backbone, stage and preprocessing of this "
                    f"evaluation ({self.encoder.fingerprint[:DIGITS]}), got one that was trained on others "
                    f"({rival.encoder[:DIGITS]})"
                )
        for name, other in self.others.items():
            if BackboneEncoder(other, self.processor).fingerprint != self.encoder.fingerprint:
                raise ValueError(f"{name}: expected a model on the backbone and stage of the first, got another")
        for name, head in self._heads.items():
            if head.config.num_rotations not in (1, POSES):
                raise ValueError(f"{name}: expected num_rotations 1 or {POSES}, got {head.config.num_rotations}")

    @property
    def _heads(self) -> dict[str, IdealModel]:
        """The models among the methods, by name."""
        return {name: head for name, head in {IDEAL: self.model, **self.others}.items() if name in self.methods}

    def run(self) -> dict[str, Any]:
        """Measure what has not been measured yet, and write the results; processes of `accelerate launch` share it."""
        from accelerate import PartialState
        from accelerate.utils import parse_flag_from_env

        state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
        with state.main_process_first():
            records = load_records(self.target, self.layout)
            catalogue = Catalogue.from_records(records)
        sets = self._reference_sets(catalogue)
        for references in sets:
            inference_episodes(catalogue, references)  # raises if it has no queries, before the work begins
        cache = encode_records(records, self.encoder, self.cache)
        turn = self._turn(records, catalogue, sets)
        rivals = {name: RivalMethod(rival) for name, rival in self.rivals.items() if name in self.methods}
        scorer = Scorer(
            cache, catalogue, self.methods, self.model, self._heads, turn, self.smoothing, self.settings, rivals
        )
        (self.out / "measurements").mkdir(parents=True, exist_ok=True)
        key = partial(measurement_key, scorer, methods=self.methods)
        album = Album(records, sets, self.out / "pictures", key) if self.pictures else None
        share = sets[state.process_index :: state.num_processes]
        for references in tqdm(share, desc="Evaluating", unit="set", disable=not state.is_local_main_process):
            self._measure(scorer, references, album)
        state.wait_for_everyone()
        results = self._results(scorer, sets)
        if state.is_main_process:
            write_references(self.out / "references.json", sets)
            write_json(self.out / "results.json", results)
            write_document(self.out / "tables.md", [results])
        return results

    def _measure(self, scorer: Scorer, references: ReferenceSet, album: Album | None) -> None:
        """Measure what is missing with a reference set; where pictures are missing, score by all methods for them."""
        files = {method: self._measurement_file(scorer, references, method) for method in self.methods}
        missing = [method for method, file in files.items() if read_measurement(file) is None]
        pictures = None if album is None else album.missing(scorer, references)
        if not missing and pictures is None:
            return
        scored = replace(scorer, methods=missing if pictures is None else self.methods)
        measured = measure(scored, references, None if pictures is None else pictures.add)
        for method in missing:
            write_json(files[method], measured[method])
        if pictures is not None:
            pictures.write()

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

    def _turn(self, records: datasets.Dataset, catalogue: Catalogue, sets: Sequence[ReferenceSet]) -> Turn | None:
        """Encode the normal references in other poses, once, if a method asks for them; returns how to read them."""
        rotations = [head.config.num_rotations for head in self._heads.values()]
        if max(rotations, default=1) == 1 and IN_POSES.isdisjoint(self.methods):
            return None
        return encode_poses(records, catalogue, sets, PoseEncoder(self.model, self.processor, POSES), self.cache)

    def _measurement_file(self, scorer: Scorer, references: ReferenceSet, method: str) -> Path:
        """One for each reference set and method, so that a method added later leaves those of the others alone."""
        return self.out / "measurements" / f"{measurement_key(scorer, references, [method])}.json"

    def _results(self, scorer: Scorer, sets: Sequence[ReferenceSet]) -> dict[str, Any]:
        measured = {
            method: [(references, self._measurement(scorer, references, method)) for references in sets]
            for method in self.methods
        }
        methods = {method: {"setups": summaries(each)} for method, each in measured.items()}
        models = {name: head.fingerprint for name, head in self._heads.items()}
        models |= {name: rival.fingerprint for name, rival in self.rivals.items()}
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
            "difficulty": difficulties(measured[self.methods[0]]),  # the same for all methods
            "methods": methods,
            "differences": differences_to_ideal(measured),
            "gains": gains_of_eraser(measured),
        }
        if IDEAL in methods:
            results["setups"] = methods[IDEAL]["setups"]
        return results

    def _measurement(self, scorer: Scorer, references: ReferenceSet, method: str) -> Measurement:
        file = self._measurement_file(scorer, references, method)
        measurement = read_measurement(file)
        if measurement is None:
            raise ValueError(f"{file}: expected the measurement that this run has stored there, got none")
        return measurement
