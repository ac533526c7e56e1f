"""Early signs of trouble: a run that cannot succeed stops, and its message says what to check."""

import math
from collections.abc import Sequence

EPOCHS_TO_FALL = 3  # after warm-up


def check_finite_losses(losses: dict[str, float], step: int) -> None:
    """Refuse a loss that is not finite before it reaches the weights."""
    parts = [name for name, value in losses.items() if name != "loss" and not math.isfinite(value)]
    if parts or not math.isfinite(losses["loss"]):
        raise ValueError(
            f"step {step}: the loss is {losses['loss']} (not finite: {', '.join(parts) or 'the sum'}); try a lower "
            "--learning_rate or --max_grad_norm 1, and check the pictures with `ideal data check`"
        )


def check_falling_losses(epoch_losses: Sequence[float], warmup_epochs: int) -> None:
    """Refuse a run from scratch in which no epoch has had a lower mean loss than the first.

    It waits for three epochs after warm-up, and a single lower epoch is enough to pass: short, noisy and converged
    runs continue. Fine-tuning may start at its lowest loss, so it is not checked.
    """
    first, later = epoch_losses[0], epoch_losses[1:]
    if len(epoch_losses) >= warmup_epochs + EPOCHS_TO_FALL and later and min(later) >= first:
        raise ValueError(
            f"the loss does not fall: {first:.4f} in the first epoch, {min(later):.4f} at best in the "
            f"{len(later)} after it; check --learning_rate, the masks (`ideal data check`), and that the backbone "
            "is pre-trained"
        )
