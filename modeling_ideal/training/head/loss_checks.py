"""Early evidence of trouble: a run that cannot come to anything stops with a sentence that says what to check."""

import math
from collections.abc import Sequence

EPOCHS_TO_FALL = 3  # at the full learning rate


def check_finite(losses: dict[str, float], step: int) -> None:
    """Refuse a loss that is not a number before it reaches the weights."""
    parts = [name for name, value in losses.items() if name != "loss" and not math.isfinite(value)]
    if parts or not math.isfinite(losses["loss"]):
        raise ValueError(
            f"step {step}: the loss is {losses['loss']} (not finite: {', '.join(parts) or 'the sum'}); check "
            "--learning_rate (lower it), --max_grad_norm 1, and the pictures (`ideal data check`)"
        )


def check_falling(epoch_losses: Sequence[float], warmup_epochs: int) -> None:
    """Refuse a run from scratch in which no epoch's mean loss came below that of the first.

    It waits for three epochs after warm-up, and says nothing while a single one of all was lower: a short run,
    a noisy one, or one that has converged goes on. A model that is fine-tuned may start at its lowest loss, so
    it is not asked.
    """
    first, later = epoch_losses[0], epoch_losses[1:]
    if len(epoch_losses) >= warmup_epochs + EPOCHS_TO_FALL and later and min(later) >= first:
        raise ValueError(
            f"the loss does not fall: {first:.4f} in the first epoch, {min(later):.4f} at best in the "
            f"{len(later)} after it; check --learning_rate, the masks (`ideal data check`), and that the backbone "
            "is pre-trained"
        )
