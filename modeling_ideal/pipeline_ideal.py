"""The pipeline "anomaly-detection": whether a part is anomalous, where, and of which type."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from .explanation import JudgedPicture, check_explainable, explain
from .image_inputs import ImageInput, file_content
from .input_checks import check_images, check_number, check_smoothing
from .masks import MaskInput
from .outputs import IdealOutput
from .pipeline_inputs import Preparation, is_many, read_batches
from .pipeline_references import ReferenceKeeper
from .pipeline_results import calibration_for, make_verdict, nearest_type
from .reference_inputs import ReferenceInputs, check_names
from .references import IdealReferences
from .scoring import highest_patches, image_scores, scores_and_weights, upsample, weighted_map
from .tiling import TiledDetector

TASK = "anomaly-detection"

# The arguments of a call that are not about references.
OPTIONS = [
    *("threshold", "smoothing", "ignore_mask", "top_fraction", "return_mask", "return_regions", "return_overlay"),
    *("return_explanation", "num_workers", "batch_size"),
]

Result = dict[str, Any]


class AnomalyDetectionPipeline(ReferenceKeeper, Pipeline):
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
            inputs: a path, http(s) address, bytes or file object of an image file, PIL image, array or tensor; or many
                of them.
            num_workers: number of processes that read images, of whatever collection; a generator is then read ahead
                of the results, by two batches per process.
            batch_size: number of images to read, and on an accelerator to encode, at a time; does not affect results.
            normal: images of good parts.
            abnormal: images of defective parts.
            masks: the mask of the defect in each abnormal image, in any form that `IdealImageProcessor` accepts;
                without masks, the model finds the defects itself.
            types: the type of the defect in each abnormal image.
            false_alarm: the requested false-alarm rate, from which the references are calibrated: the share of good
                parts that may be called anomalous (default: 0.05; 0 for no calibration, which is faster).
            tiling: cut large images into tiles of this side in pixels, or of the processor's size with True, so that
                small defects are not lost in resizing; the score is then that of the highest tile.
            keep_pictures: whether to keep a small picture of each reference with the references, for people to see
                (default: True).
            max_patches: number of normal patches to keep for scoring, which is then faster: those that represent the
                others, as many of each picture (default: all; in tiles 2048).
            references: a references file or an `IdealReferences`, instead of the eight arguments above.
            threshold: images with a score at or above it are anomalous, 0..1; default: the threshold of the
                references for scores of this `top_fraction` and `ignore_mask`, or 0.5 if they are not calibrated.
            smoothing: standard deviation of the Gaussian smoothing of the anomaly map, in pixels of the model's input,
                at most 512; default: 4.
            ignore_mask: a mask, in any form, of what to ignore in every image. The map is 0 there, and patches that
                touch it affect neither the score nor the rest of the map.
            top_fraction: share of the highest patch scores whose mean is the score; default: that of the model.
            return_mask: add `"mask"`, bool (H, W): where the map of an anomalous image is at or above the threshold,
                or half the height of its highest peak if that is lower. Never empty for the label anomalous, always
                empty for normal.
            return_regions: add `"regions"`, the connected regions of that mask, highest score first:
                `{"box": (x0, y0, x1, y1), "score": ..., "area": ...}` each.
            return_overlay: add `"overlay"`, a PIL image of the map over the image, green at the threshold; only the
                mask is hotter than that.
            return_explanation: add `"explanation"`, a dictionary: the most suspicious region, the normal patches it
                was compared with, the reference defect that it resembles most, in words and as a PIL image; see
                `explain`.

        Returns:
            For each image `{"score": 0..1, "label": "anomalous" if the score is at or above the threshold, otherwise
            "normal", "threshold": ..., "anomaly_map": float32 (H, W) of the image's own size}`; with calibrated
            references also `"confidence"`, 0..1: the estimated share of good parts that score lower, which is
            1 - `false_alarm` at their threshold; with types also `"type"`: the nearest type or `"unknown"`, None for
            the label normal.

        Warns:
            UserWarning: if references are encoded or loaded, for each sentence in their `warnings`.
        """
        preprocess, forward, postprocess = self.steps(**parameters)
        if not is_many(inputs):
            return self.run_single(inputs, preprocess, forward, postprocess)
        num_workers = self._num_workers or 0 if num_workers is None else num_workers
        batch_size = self._batch_size or 1 if batch_size is None else batch_size
        results = self.get_iterator(inputs, num_workers, batch_size, preprocess, forward, postprocess)
        return list(results) if isinstance(inputs, (Sequence, np.ndarray, Tensor)) else results

    def steps(self, **parameters: Any) -> tuple[dict, dict, dict]:
        """The arguments of `preprocess`, `_forward` and `postprocess`; encodes or checks the references."""
        given = self._sanitize_parameters(**parameters)
        kept = (self._preprocess_params, self._forward_params, self._postprocess_params)
        preprocess, forward, postprocess = ({**old, **new} for old, new in zip(kept, given, strict=True))
        forward["references"] = references = self._references(given[1].get("references"), stacklevel=5)
        if postprocess.get("return_explanation"):
            check_explainable(references)
        if references.tile_size is not None:
            preprocess["tiled"] = True
        return preprocess, forward, postprocess

    def run_single(self, inputs: Any, preprocess: dict, forward: dict, postprocess: dict) -> Result:
        """Process one image; ValueError if it cannot be read."""
        [output] = self.forward([self.preprocess(inputs, **preprocess)], **forward)
        return self.postprocess(output, forward["references"], **postprocess)

    def get_iterator(
        self, inputs: Any, num_workers: int, batch_size: int, preprocess: dict, forward: dict, postprocess: dict
    ) -> Iterator[Result]:
        """Process many images, yielding one result after another."""
        batches = read_batches(inputs, self._preparation(**preprocess), batch_size, num_workers)
        outputs = (output for batch in batches for output in self.forward(batch, **forward))
        return (self._result(output, forward["references"], postprocess) for output in outputs)

    def _result(self, output: dict[str, Any], references: IdealReferences, postprocess: dict) -> Result:
        """The result of one image among many; an error instead of ValueError."""
        try:
            return output if "error" in output else self.postprocess(output, references, **postprocess)
        except ValueError as error:
            return {"error": f"{output['name']}: {error}"}

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
        return_explanation: bool | None = None,
        **references: Any,
    ) -> tuple[dict, dict, dict]:
        """Check the arguments and divide them among `preprocess`, `_forward` and `postprocess`; encodes nothing."""
        check_names(references, [*ReferenceInputs.names(), *OPTIONS])
        check_number("threshold", threshold, "in 0..1", lambda value: 0 <= value <= 1)
        check_smoothing(smoothing)
        check_number("top_fraction", top_fraction, "> 0, at most 1", lambda value: 0 < value <= 1)
        flags = {"return_mask": return_mask, "return_regions": return_regions, "return_overlay": return_overlay}
        flags["return_explanation"] = return_explanation
        for name, flag in flags.items():
            if flag is not None and not isinstance(flag, bool):
                raise ValueError(f"{name}: expected True or False, got {flag!r}")
        inputs = ReferenceInputs(**references)
        steps = (
            {
                "ignore_mask": file_content(ignore_mask, "ignore_mask"),
                "keep_picture": return_overlay or return_explanation,
            },
            {
                "references": inputs if inputs.given() else None,
                "top_fraction": top_fraction,
                "smoothing": smoothing,
                "keep_features": return_explanation,
            },
            {"threshold": threshold, "smoothing": smoothing, **flags},
        )
        preprocess, forward, postprocess = (
            {name: value for name, value in step.items() if value is not None} for step in steps
        )
        return preprocess, forward, postprocess

    def preprocess(self, input_: ImageInput, **preprocess: Any) -> dict[str, Any]:
        """Prepare an image for `_forward` and `postprocess`; arguments as in `Preparation`."""
        return self._preparation(**preprocess)(input_, "image")

    def _preparation(self, **preprocess: Any) -> Preparation:
        return Preparation(self.image_processor, self.model.config.patch_size, **preprocess)

    def _forward(
        self,
        batch: list[dict[str, Any]],
        references: IdealReferences,
        top_fraction: float | None = None,
        smoothing: float = 4.0,
        keep_features: bool = False,
    ) -> list[dict[str, Any]]:
        """Add patch scores (h, w), score and type to each image that was read; errors are passed on."""
        # A batch is no faster on a CPU, and without one the score does not depend on the other images.
        at_once = 1 if self.model.device.type == "cpu" else len(batch)
        fraction = top_fraction or self.model.config.top_fraction
        for item in (item for item in batch if "pixels" in item):  # at its own size, for tiles
            self._score_tiles(item, references, fraction, smoothing)
        for size in sorted({item["seen"] for item in batch if "seen" in item}):
            same_size = [item for item in batch if item.get("seen") == size]
            for start in range(0, len(same_size), at_once):
                self._score(same_size[start : start + at_once], size, references, fraction, keep_features)
        return batch

    def _score(
        self,
        items: list[dict[str, Any]],
        size: tuple[int, int],
        references: IdealReferences,
        fraction: float,
        keep_features: bool,
    ) -> None:
        """Score images that are resized to one `size`; see `_forward`."""
        query = torch.stack([item.pop("query") for item in items])  # (b, 3, H, W)
        check_images("query", query, (4,), self.model.config.patch_size, self.model.config.num_channels)
        features = self.model.extract_features(query)  # (b, h, w, C)
        everything = torch.ones(features.shape[1:3], dtype=torch.bool)
        all_counted = torch.stack([item.get("counted", everything) for item in items]).to(features.device)  # (b, h, w)
        scores = self.model.score_features(features, references, size, counted=all_counted).patch_scores  # (b, h, w)
        for item, patches, patch_scores, counted in zip(items, features, scores, all_counted, strict=True):
            counted_scores = patch_scores[counted][None]  # (1, n)
            score = image_scores(counted_scores, fraction)
            item |= {"patch_scores": patch_scores, "score": score, "top_fraction": fraction}
            item["features"] = patches if keep_features else None
            if references.types:
                highest = highest_patches(counted_scores, fraction)[0]
                item["type"] = self._type(patches[counted][highest], references)

    def _score_tiles(self, item: dict, references: IdealReferences, fraction: float, smoothing: float) -> None:
        """Score an image in tiles; see `_forward`. Its map is merged and smoothed here, at the image's own size."""
        detector = TiledDetector(self.model, self.image_processor, references.tile_size)
        asked: dict[str, Any] = {"ignore_mask": item.get("ignored"), "top_fraction": fraction, "name": item["name"]}
        found = detector.detect(item.pop("pixels"), references, smoothing, **asked)
        item |= {"score": found.score, "top_fraction": fraction, "merged_map": found.anomaly_map}
        item["counted"] = found.counted
        if references.types:
            item["type"] = self._type(found.patches, references)

    def _type(self, patches: Tensor, references: IdealReferences) -> str:
        """The nearest type of anomalous patches (P, C)."""
        types = [references.types[source] for source in references.abnormal_sources[0].tolist()]
        deviations = self.model.deviations(patches, *references.normals(0)).denoised
        return nearest_type(deviations, references.abnormal_deviations[0], types)

    def postprocess(
        self,
        output: dict[str, Any],
        references: IdealReferences,
        smoothing: float = 4.0,
        threshold: float | None = None,
        return_overlay: bool = False,
        return_explanation: bool = False,
        **asked: Any,
    ) -> Result:
        """Make the result of one image; further arguments as in `make_verdict`."""
        ignored = None if output.get("ignored") is None else output["ignored"].numpy()
        result = make_verdict(
            float(output["score"]),
            self._anomaly_map(output, smoothing),
            calibration_for(references, output["top_fraction"], output.get("counted"), threshold),
            defect_type=output.get("type"),
            picture=output.get("picture") if return_overlay else None,
            ignored=ignored,
            threshold=threshold,
            **asked,
        )
        if return_explanation:
            judged = JudgedPicture.from_output(output, result["anomaly_map"], ignored)
            result["explanation"] = explain(self.model, references, judged, result)
        return result

    def _anomaly_map(self, output: dict[str, Any], smoothing: float) -> np.ndarray:
        """The anomaly map (H, W) at the image's own size, without the ignored patches."""
        if "merged_map" in output:
            return output["merged_map"].numpy()
        scores, ignored = output["patch_scores"], output.get("ignored")
        # (1, h, w), or (2, h, w) with weights
        patches = scores[None] if ignored is None else scores_and_weights(scores, output["counted"])
        maps = self.image_processor.post_process_anomaly_detection(
            IdealOutput(anomaly_maps=upsample(patches, output["seen"])), [output["size"]] * len(patches), smoothing
        )
        return (maps[0] if ignored is None else weighted_map(maps[0], maps[1], ignored)).numpy()


# Here rather than in the package's __init__, so that it also happens when this file is loaded as remote code.
PIPELINE_REGISTRY.register_pipeline(TASK, pipeline_class=AnomalyDetectionPipeline, pt_model=AutoModel, type="image")
