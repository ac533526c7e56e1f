"""What a smaller bank of normal patches costs and saves: up to 32 normal references, all patches to a tenth of them.

With IDEAL_DATA, a folder in the layout of MVTec AD, its hazelnut, screw and cable, every second test picture, or those
of them that are there; nothing without. With IDEAL_BACKBONE, the folder of a pre-trained backbone; else ideal-tiny.
"""

import os
import time
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from modeling_ideal import IDEAL_TINY, IdealImageProcessor, IdealModel, IdealReferences
from modeling_ideal.calibration import encode_pictures
from modeling_ideal.data import load_records
from modeling_ideal.masks import load_mask
from modeling_ideal.metrics import image_metrics, pixel_metrics
from modeling_ideal.reference_reading import read_pictures

CATEGORIES = ("hazelnut", "screw", "cable")
SHARES = (1, 2, 4, 10)  # of the patches one in so many is kept
EVERY = 2  # test picture
STEP = 4  # pixels between those that are compared with the masks


def build() -> tuple[IdealModel, IdealImageProcessor]:
    folder = os.environ.get("IDEAL_BACKBONE")
    if folder:
        return IdealModel.from_backbone(folder), IdealImageProcessor()
    return IdealModel.from_pretrained(IDEAL_TINY), IdealImageProcessor.from_pretrained(IDEAL_TINY)


@torch.no_grad()
def measure() -> dict[str, float]:
    root = os.environ.get("IDEAL_DATA")
    if not root:
        return {}
    (model, processor), records = build(), load_records(root, layout="mvtec")
    figures: dict[str, float] = {}
    for category in (name for name in CATEGORIES if name in records["category"]):
        own = records.filter(lambda name, category=category: name == category, input_columns="category")
        normal, test = ([each for each in own if each["split"] == split] for split in ("train", "test"))
        test = test[::EVERY]
        pictures = read_pictures(model, processor(normal_refs=[each["image"] for each in normal])["normal_refs"])
        features = [model.extract_features(processor(query=each["image"])["query"]) for each in test]
        labels = np.array([each["label"] for each in test])
        masks = np.stack([mask_of(each, processor) for each in test])
        total = len(encode_pictures(model, replace(pictures, false_alarm=0)).normal_features[0])
        for share in SHARES:
            started = time.process_time()
            references = encode_pictures(model, replace(pictures, max_patches=None if share == 1 else total // share))
            encoded = time.process_time() - started
            scores, maps, seconds = judged(model, features, references, masks.shape[1:])
            called = scores >= references.calibration.threshold
            kept = f"{category}, {'all' if share == 1 else f'1/{share} of the'} patches"
            figures |= {
                f"{kept}: number": float(len(references.normal_features[0])),
                f"{kept}: image AUROC, %": 100 * image_metrics(scores, labels)["auroc"],
                f"{kept}: pixel AUROC, %": 100 * pixel_metrics(maps, masks)["auroc"],
                f"{kept}: good parts called anomalous, %": 100 * called[labels == 0].mean(),
                f"{kept}: defective parts found, %": 100 * called[labels == 1].mean(),
                f"{kept}: scoring a picture after the backbone, CPU ms": 1e3 * seconds,
                f"{kept}: selecting and calibrating, CPU s": encoded,
            }
    return figures


def mask_of(record: dict, processor: IdealImageProcessor) -> np.ndarray:
    """Every few pixels of the mask of a test picture, at the size that the model sees."""
    height, width = processor.size["height"], processor.size["width"]
    if record["mask"] is None:
        return np.zeros((height // STEP, width // STEP), bool)
    mask = torch.from_numpy(np.array(load_mask(record["mask"], record["image"].size[::-1], "mask"))).float()
    return F.interpolate(mask[None, None], (height // STEP, width // STEP))[0, 0].numpy() > 0


def judged(
    model: IdealModel, features: list[Tensor], references: IdealReferences, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores, maps of `size`, and seconds of the processor a picture."""
    references.normals(0)  # made once
    started = time.process_time()
    outputs = [model.score_features(each, references, size) for each in features]
    seconds = (time.process_time() - started) / len(features)
    scores = np.array([output.scores.item() for output in outputs])
    return scores, torch.cat([output.anomaly_maps for output in outputs]).numpy(), seconds
