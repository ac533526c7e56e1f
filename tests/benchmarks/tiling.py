"""What judging a large picture in tiles costs beyond the backbone: ideal-tiny, random pictures."""

import time
from functools import partial

import numpy as np
import torch

from modeling_ideal import IDEAL_TINY, IdealImageProcessor, IdealModel
from modeling_ideal.evaluation.cost.memory import peak_mebibytes, reset_peak
from modeling_ideal.evaluation.cost.timing import interleaved_medians
from modeling_ideal.modeling_ideal import IMAGES_AT_ONCE
from modeling_ideal.tiling import TiledDetector

SIZE = (1344, 1792)
ROUNDS = 5


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


@torch.inference_mode()
def measure() -> dict[str, float]:
    detector = TiledDetector(IdealModel.from_pretrained(IDEAL_TINY), IdealImageProcessor.from_pretrained(IDEAL_TINY))
    mask = np.zeros(SIZE, bool)
    mask[200:240, 300:360] = True
    normal, abnormal, query = [picture(0), picture(1)], [picture(2)], picture(3)
    encode = partial(detector.encode_references, normal, abnormal, [mask])
    names = ("three references encoded, with a threshold", "three references encoded", "judged")
    memory, references = {}, encode()
    first = dict(zip(names, (partial(encode, 0.05), encode, partial(detector.detect, query, references)), strict=True))
    seconds = {}
    for name, task in first.items():
        reset_peak()
        before, start = peak_mebibytes(), time.process_time()
        task()
        seconds[name] = time.process_time() - start
        memory[f"{name}, peak extra MB"] = peak_mebibytes() - before
    tiles = list(detector.encoder.grid(query).cut(query))
    batches = [
        detector.encoder.pixels(tiles[start : start + IMAGES_AT_ONCE])
        for start in range(0, len(tiles), IMAGES_AT_ONCE)
    ]
    tasks = {
        "backbone": lambda: [detector.model.extract_features(batch) for batch in batches],
        "judged": first["judged"],
    }
    # Seconds of all threads of this process: others on the machine count for little.
    seconds |= interleaved_medians(tasks, ROUNDS, time.process_time)
    backbone = seconds.pop("backbone")
    figures = {f"backbone over the {len(tiles)} tiles of a picture, s of CPU": backbone}
    figures |= {f"{name}, relative to that": value / backbone for name, value in seconds.items()}
    return figures | memory
