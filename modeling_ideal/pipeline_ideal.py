"""The pipeline "anomaly-detection": whether a part is anomalous, where, and of which type."""

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
from .pipeline_results import make_verdict, nearest_type, read_ignored, scores_and_weights, weighted_map
from .references import IdealReferences
from .scoring import highest_patches, image_scores, upsample
from .tiling import TiledDetector

TASK = "anomaly-detection"

Result = dict[str, Any]


class AnomalyDetectionPipeline(Pipeline):
    """Detects anomalies from a few reference images.

        pipe = pipeline("anomaly-detection", model="org/ideal", trust_remote_code=True)
        pipe("part.png", normal=["good_1.png", "good_2.png"], abnormal=["scratched.png"])

    References are given with each call, or once for all calls with `set_references`. They can be images, a references
    file, or the result of `set_references`; images are encoded once per call, for any number of queries.
    """

    _load_processor = False
    _load_image_processor = True
    _load_video_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False

    def __call__(
        self, inputs: Any, *, num_workers: int | None = None, batch_size: int | None = None, **parameters: Any
    ) -> Result | list[Result] | Iterator[Result]:
        """Detect anomalies in one image or many.

        For a list, a stack (n, H, W, 3) or another sequence the result is a list; for a generator or a data set it is
        an iterator that reads images on demand. An image that cannot be read raises ValueError; among many images, its
        result is `{"error": ...}`.

        Args:
            inputs: a path, http(s) address, PIL image, array or tensor; or many of them.
            num_workers: number of processes that read images.
            batch_size: number of images to read, and on an accelerator to encode, at a time; does not affect results.
            normal: images of good parts.
            abnormal: images of defective parts.
            masks: the mask of the defect in each abnormal image, in any form that `IdealImageProcessor` accepts;
                without masks, the model finds the defects itself.
            types: the type of the defect in each abnormal image.
            false_alarm: the requested false-alarm rate, from which the references are calibrated: the share of good
                parts that may be called anomalous (default: 0.05; 0 for no calibration, which is faster).
            tiling: cut large images into tiles of this side in pixels, or of the processor's size with True, so that
                small defects are not lost in resizing. Excludes types, ignore_mask and top_fraction. Calibration
                then needs at least two normal images, and encodes the references again for each of them.
            references: a references file or an `IdealReferences`, instead of the six arguments above.
            threshold: images with this score or a higher one are anomalous, 0..1; default: the threshold of the
                references, or 0.5 if they are not calibrated.
            smoothing: standard deviation of the Gaussian smoothing of the anomaly map, in pixels of the model's input;
                default: 4.
            ignore_mask: a mask, in any form, of what to ignore in every image. The map is 0 there, and patches that
                touch it affect neither the score nor the rest of the map.
            top_fraction: share of the highest patch scores whose mean is the score; default: that of the model.
            return_mask: add `"mask"`, bool (H, W): where the map reaches the threshold.
            return_regions: add `"regions"`, the connected regions of that mask, highest score first:
                `{"box": (x0, y0, x1, y1), "score": ..., "area": ...}` each.
            return_overlay: add `"overlay"`, a PIL image of the map over the image, green at the threshold.

        Returns:
            For each image `{"score": 0..1, "label": "normal" or "anomalous", "threshold": ..., "anomaly_map": float32
            (H, W) of the image's own size}`; with calibrated references also `"probability"`, 0..1; with types also
            `"type"`: the nearest type or `"unknown"`, and None if the label is normal.
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
        """Encode or load the references for all calls without their own; arguments as in `__call__`.

        Returns:
            The references, for example for `pipe.set_references(normal=[...]).save("product.safetensors")`.
        """
        inputs = ReferenceInputs(references, **pictures)
        self._forward_params["references"] = inputs.encode(self.model, self.image_processor)
        return self._forward_params["references"]

    def run_single(self, inputs: Any, preprocess: dict, forward: dict, postprocess: dict) -> Result:
        """Process one image; ValueError if it cannot be read."""
        [output] = self.forward([self.preprocess(inputs, "image", **preprocess)], **forward)
        return self.postprocess(output, forward["references"], **postprocess)

    def get_iterator(
        self, inputs: Any, num_workers: int, batch_size: int, preprocess: dict, forward: dict, postprocess: dict
    ) -> Iterator[Result]:
        """Process many images, yielding one result after another."""
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
        """Check the arguments and divide them among `preprocess`, `_forward` and `postprocess`."""
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
        """Prepare an image for `_forward` and `postprocess`; `name` is for error messages."""
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
            prepared["ignored"], prepared["counted"] = read_ignored(
                ignore_mask, size, seen, patch_size, f"{name}, ignore_mask"
            )
        return prepared

    def _forward(
        self, batch: list[dict[str, Any]], references: IdealReferences, top_fraction: float | None = None
    ) -> list[dict[str, Any]]:
        """Add patch scores (h, w), score and type to each image that was read; errors are passed on."""
        # A batch is no faster on a CPU, and without one the score does not depend on the other images.
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
        """Score images that are resized to one `size`; see `_forward`."""
        query = torch.stack([item.pop("query") for item in items])  # (b, 3, H, W)
        check_images("query", query, (4,), self.model.config.patch_size, self.model.config.num_channels)
        features = self.model.extract_features(query)  # (b, h, w, C)
        scores = self.model.score_features(features, references, size).patch_scores  # (b, h, w)
        for item, patches, patch_scores in zip(items, features, scores, strict=True):
            counted = item.get("counted", torch.ones_like(patch_scores, dtype=torch.bool))
            counted_scores = patch_scores[counted][None]  # (1, n)
            item |= {"patch_scores": patch_scores, "score": image_scores(counted_scores, fraction)}
            if references.types:
                highest = highest_patches(counted_scores, fraction)[0]
                item["type"] = self._type(patches[counted][highest], references)

    def _type(self, patches: Tensor, references: IdealReferences) -> str:
        """The nearest type of anomalous patches (P, C)."""
        types = [references.types[source] for source in references.abnormal_sources[0].tolist()]
        deviations = self.model.deviations(patches, *references.normals(0)).denoised
        return nearest_type(deviations, references.abnormal_deviations[0], types)

    def postprocess(
        self, output: dict[str, Any], references: IdealReferences, smoothing: float = 4.0, **asked: Any
    ) -> Result:
        """Make the result of one image; further arguments as in `make_verdict`."""
        return make_verdict(
            float(output["score"]),
            self._anomaly_map(output, smoothing),
            references,
            defect_type=output.get("type"),
            picture=output.get("picture"),
            **asked,
        )

    def _anomaly_map(self, output: dict[str, Any], smoothing: float) -> np.ndarray:
        """The anomaly map (H, W) at the image's own size, without the ignored patches."""
        if "merged_map" in output:
            merged = output["merged_map"]
            return (gaussian_smoothing(merged[None], smoothing)[0] if smoothing else merged).numpy()
        scores, ignored = output["patch_scores"], output.get("ignored")
        # (1, h, w), or (2, h, w) with weights
        patches = scores[None] if ignored is None else scores_and_weights(scores, output["counted"])
        maps = self.image_processor.post_process_anomaly_detection(
            IdealOutput(anomaly_maps=upsample(patches, output["seen"])), [output["size"]] * len(patches), smoothing
        )
        return (maps[0] if ignored is None else weighted_map(maps[0], maps[1], ignored)).numpy()


# Here rather than in the package's __init__, so that it also happens when this file is loaded as remote code.
PIPELINE_REGISTRY.register_pipeline(TASK, pipeline_class=AnomalyDetectionPipeline, pt_model=AutoModel, type="image")
