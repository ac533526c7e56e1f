"""The pipeline "anomaly-detection": is this part bad, how sure, where, and of which type."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from .image_inputs import ImageInput, load_image
from .image_processing_ideal import gaussian_smoothing
from .input_checks import check_images, check_number
from .masks import MaskInput
from .outputs import IdealOutput
from .pipeline_inputs import ReferenceInputs, is_many, read_batches
from .pipeline_results import counting_map, counting_scores, make_verdict, nearest_type, read_ignored
from .references import IdealReferences
from .scoring import highest_patches, image_scores, upsample
from .tiling import TiledDetector

TASK = "anomaly-detection"

Result = dict[str, Any]


class AnomalyDetectionPipeline(Pipeline):
    """Finds anomalies from a few reference photographs.

        pipe = pipeline("anomaly-detection", model="org/ideal", trust_remote_code=True)
        pipe("part.png", normal=["good_1.png", "good_2.png"], abnormal=["scratched.png"])

    References come with the call, or once for all calls by `set_references`, or encoded before: a file, or what
    `set_references` returned. They are encoded once, however many images follow.
    """

    _load_processor = False
    _load_image_processor = True
    _load_video_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False

    def __call__(
        self, inputs: Any, *, num_workers: int | None = None, batch_size: int | None = None, **parameters: Any
    ) -> Result | list[Result] | Iterator[Result]:
        """Judge one image, or many.

        A list, a stack (n, H, W, 3) or another sequence gives a list; a generator or a data set gives an iterator
        that reads as it goes. One image that cannot be read raises ValueError; among many it gives
        `{"error": ...}` in its place.

        Args:
            inputs: path, http(s) address, PIL image, array or tensor; or many of them.
            num_workers: processes that read pictures.
            batch_size: pictures read, and on an accelerator encoded, at a time; results do not depend on it.
            normal: photographs of good parts.
            abnormal: photographs of defective ones.
            masks: where the defect is on each of those, as `IdealImageProcessor` takes them; the model finds it
                itself without them.
            types: the name of the defect on each of those.
            false_alarm: the share of good parts that may be called anomalous, for the threshold that is found from
                the references (default: 0.05; 0 finds none, which is quicker).
            tiling: cut large pictures into tiles of this side in pixels, or with True of the processor's size, so
                that small defects are not resized away; without types, ignore_mask and top_fraction, and with a
                threshold from two normal references on, each of which is then encoded again for every other.
            references: instead of the six above: a references file, or an `IdealReferences`.
            threshold: scores from here on are anomalous, 0..1; default: that of the references, else 0.5.
            smoothing: of the anomaly map, standard deviation in pixels of the size the model sees; default: 4.
            ignore_mask: where nothing ever counts, in every picture; any form of a mask. The map is 0 there, and
                no patch that touches it enters the score or the rest of the map.
            top_fraction: share of the highest patch scores whose mean is the score; default: the model's.
            return_mask: add `"mask"`, (H, W) bool: where the map reaches the threshold.
            return_regions: add `"regions"`, the connected parts of that mask, highest first: each
                `{"box": (x0, y0, x1, y1), "score": ..., "area": ...}`.
            return_overlay: add `"overlay"`, a PIL image: the map over the photograph, green at the threshold.

        Returns:
            Of each image `{"score": 0..1, "label": "normal" or "anomalous", "threshold": ..., "anomaly_map": float32
            (H, W) of the image's own size}`; if the references are calibrated, also `"probability"`, 0..1; if they
            have types, also `"type"`: the nearest one or `"unknown"`, None where the label is normal.
        """
        given = self._sanitize_parameters(**parameters)
        kept = (self._preprocess_params, self._forward_params, self._postprocess_params)
        preprocess, forward, postprocess = ({**old, **new} for old, new in zip(kept, given, strict=True))
        if "references" not in forward:
            raise ValueError(
                "expected references, got none: give normal=[...], abnormal=[...] or both, or references=FILE, with "
                "the call or once to pipe.set_references(...)"
            )
        if forward["references"].tile_size is not None:
            if "ignore_mask" in preprocess or "top_fraction" in forward:
                raise ValueError("references in tiles: expected neither ignore_mask nor top_fraction, got one of them")
            preprocess["tiled"] = True
        if not is_many(inputs):
            return self.run_single(inputs, preprocess, forward, postprocess)
        num_workers = self._num_workers or 0 if num_workers is None else num_workers
        batch_size = self._batch_size or 1 if batch_size is None else batch_size
        results = self.get_iterator(inputs, num_workers, batch_size, preprocess, forward, postprocess)
        return list(results) if isinstance(inputs, (Sequence, np.ndarray, Tensor)) else results

    def set_references(self, references: Any = None, **pictures: Any) -> IdealReferences:
        """Encode, or load, the references of all calls that bring none of their own; arguments as there.

        Returns:
            What was encoded: `pipe.set_references(normal=[...]).save("product.safetensors")`.
        """
        inputs = ReferenceInputs(references, **pictures)
        self._forward_params["references"] = inputs.encode(self.model, self.image_processor)
        return self._forward_params["references"]

    def run_single(self, inputs: Any, preprocess: dict, forward: dict, postprocess: dict) -> Result:
        """One image; ValueError if it cannot be read."""
        [output] = self.forward([self.preprocess(inputs, "image", **preprocess)], **forward)
        return self.postprocess(output, forward["references"], **postprocess)

    def get_iterator(
        self, inputs: Any, num_workers: int, batch_size: int, preprocess: dict, forward: dict, postprocess: dict
    ) -> Iterator[Result]:
        """Many images, one result after the other."""
        batches = read_batches(inputs, partial(self.preprocess, **preprocess), batch_size, num_workers)
        outputs = (output for batch in batches for output in self.forward(batch, **forward))
        return (
            output if "error" in output else self.postprocess(output, forward["references"], **postprocess)
            for output in outputs
        )

    def _sanitize_parameters(
        self,
        *,
        threshold: float | None = None,
        smoothing: float | None = None,
        ignore_mask: MaskInput | None = None,
        top_fraction: float | None = None,
        return_mask: bool | None = None,
        return_regions: bool | None = None,
        return_overlay: bool | None = None,
        **references: Any,
    ) -> tuple[dict, dict, dict]:
        """What was given, checked, for `preprocess`, `_forward` and `postprocess`."""
        check_number("threshold", threshold, "in 0..1", lambda value: 0 <= value <= 1)
        check_number("smoothing", smoothing, ">= 0", lambda value: 0 <= value < float("inf"))
        check_number("top_fraction", top_fraction, "> 0, at most 1", lambda value: 0 < value <= 1)
        inputs = ReferenceInputs(**references)
        encoded = inputs.encode(self.model, self.image_processor) if inputs.given() else None
        steps = (
            {"ignore_mask": ignore_mask, "keep_picture": return_overlay},
            {"references": encoded, "top_fraction": top_fraction},
            {
                "threshold": threshold,
                "smoothing": smoothing,
                "return_mask": return_mask,
                "return_regions": return_regions,
            },
        )
        preprocess, forward, postprocess = (
            {name: value for name, value in step.items() if value is not None} for step in steps
        )
        return preprocess, forward, postprocess

    def preprocess(
        self,
        input_: ImageInput,
        name: str,
        ignore_mask: MaskInput | None = None,
        keep_picture: bool = False,
        tiled: bool = False,
    ) -> dict[str, Any]:
        """An image to what `_forward` and `postprocess` need of it; `name` is for error messages."""
        picture = load_image(input_, name)  # (H, W, 3)
        kept: dict[str, Any] = {"picture": picture} if keep_picture else {}
        if tiled:
            return {"pixels": picture, **kept}
        size = (picture.shape[0], picture.shape[1])
        query = self.image_processor(query=picture)["query"][0]
        seen = (query.shape[1], query.shape[2])
        prepared = {"query": query, "size": size, "seen": seen, **kept}
        if ignore_mask is not None:
            patch_size = self.model.config.patch_size
            prepared["ignored"], prepared["counts"] = read_ignored(
                ignore_mask, size, seen, patch_size, f"{name}, ignore_mask"
            )
        return prepared

    def _forward(
        self, batch: list[dict[str, Any]], references: IdealReferences, top_fraction: float | None = None
    ) -> list[dict[str, Any]]:
        """Add patch scores (h, w), score and type to each picture that was read; errors pass."""
        # A CPU gains nothing by a batch, and a picture alone has the same digits whatever came with it.
        at_once = 1 if self.model.device.type == "cpu" else len(batch)
        fraction = self.model.config.top_fraction if top_fraction is None else top_fraction
        if references.tile_size is not None:
            detector = TiledDetector(self.model, self.image_processor, references.tile_size)
            for item in batch:
                if "error" not in item:
                    found = detector.detect(item.pop("pixels"), references, smoothing=0)
                    item |= {"score": found.score, "merged_map": found.anomaly_map}
            return batch
        for size in sorted({item["seen"] for item in batch if "error" not in item}):
            same_size = [item for item in batch if item.get("seen") == size]
            for start in range(0, len(same_size), at_once):
                self._score(same_size[start : start + at_once], size, references, fraction)
        return batch

    def _score(
        self, items: list[dict[str, Any]], size: tuple[int, int], references: IdealReferences, fraction: float
    ) -> None:
        """As `_forward`, for pictures of one size."""
        query = torch.stack([item.pop("query") for item in items])  # (b, 3, H, W)
        check_images("query", query, (4,), self.model.config.patch_size, self.model.config.num_channels)
        features = self.model.extract_features(query)  # (b, h, w, C)
        scores = self.model.score_features(features, references, size).patch_scores  # (b, h, w)
        for item, patches, patch_scores in zip(items, features, scores, strict=True):
            counts = item.get("counts", torch.ones_like(patch_scores, dtype=torch.bool))
            counted = patch_scores[counts][None]  # (1, n)
            item |= {"patch_scores": patch_scores, "score": image_scores(counted, fraction)}
            if references.types:
                item["type"] = self._type(patches[counts][highest_patches(counted, fraction)[0]], references)

    def _type(self, patches: Tensor, references: IdealReferences) -> str:
        """The type that patches (P, C) are nearest to."""
        types = [references.types[source] for source in references.abnormal_sources[0].tolist()]
        deviations = self.model.deviations(patches, *references.normals(0)).denoised
        return nearest_type(deviations, references.abnormal_deviations[0], types)

    def postprocess(
        self, output: dict[str, Any], references: IdealReferences, smoothing: float = 4.0, **asked: Any
    ) -> Result:
        """The result of one picture; `asked` as in `make_verdict`."""
        return make_verdict(
            float(output["score"]),
            self._anomaly_map(output, smoothing),
            references,
            defect_type=output.get("type"),
            picture=output.get("picture"),
            **asked,
        )

    def _anomaly_map(self, output: dict[str, Any], smoothing: float) -> np.ndarray:
        """(H, W) at the picture's own size; where some patches do not count, from the others alone."""
        if "merged_map" in output:
            merged = output["merged_map"]
            return (gaussian_smoothing(merged[None], smoothing)[0] if smoothing else merged).numpy()
        scores, ignored = output["patch_scores"], output.get("ignored")
        patches = scores[None] if ignored is None else counting_scores(scores, output["counts"])  # (1 or 2, h, w)
        maps = self.image_processor.post_process_anomaly_detection(
            IdealOutput(anomaly_maps=upsample(patches, output["seen"])), [output["size"]] * len(patches), smoothing
        )
        return (maps[0] if ignored is None else counting_map(maps[0], maps[1], ignored)).numpy()


# Here and not in the package's __init__, so that the file does it as remote code too.
PIPELINE_REGISTRY.register_pipeline(TASK, pipeline_class=AnomalyDetectionPipeline, pt_model=AutoModel, type="image")
