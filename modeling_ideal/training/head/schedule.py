"""The optimiser and its learning rate schedule."""

import math
from collections.abc import Iterable

import torch
from torch import nn

FIRST_RATE = 1e-5  # where warm-up starts
LAST_FRACTION = 0.01  # of the base rate, at which the cosine ends
WARMUP_EPOCHS = 2


def build_optimizer(parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.AdamW:
    """AdamW with AMSGrad. The paper does not state eps; 1e-10 is that of the released implementation."""
    return torch.optim.AdamW(
        parameters, lr=learning_rate, betas=(0.9, 0.999), eps=1e-10, weight_decay=1e-4, amsgrad=True
    )


def warmup_steps(steps_per_epoch: int, epochs: int) -> int:
    """Two epochs, as in the paper, but at most a tenth of the run, for shorter runs than the paper's."""
    return min(WARMUP_EPOCHS * steps_per_epoch, steps_per_epoch * epochs // 10)


def rate_at(step: int, steps: int, warmup: int, base: float) -> float:
    """The learning rate of optimiser step `step` of `steps`: linear warm-up, then a cosine to 1 % of the base."""
    if step < warmup:
        first = min(FIRST_RATE, base)
        return first + (base - first) * step / warmup
    last = LAST_FRACTION * base
    progress = (step - warmup) / max(1, steps - 1 - warmup)
    return last + (base - last) * (1 + math.cos(math.pi * progress)) / 2
