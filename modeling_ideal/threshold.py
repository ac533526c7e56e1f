"""A decision threshold from the scores of references: plain statistics, and what is kept of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist, fmean, stdev
from typing import Any

COPY_SPREAD = 4.0  # parts differ by so much more than copies of one part do, as seen on the source data set (MVTec AD)
MINIMUM_SPREAD = 0.005  # a few references may agree by chance, or be the same picture twice
CERTAINTY = 0.95  # what `probability` says at the mean of the abnormal references; 1 - this at that of the normal ones


@dataclass(frozen=True)
class Calibration:
    """A threshold for image scores, and what it rests on; `Calibration.from_scores` makes one.

    Args:
        threshold: an image with a higher score is called anomalous.
        false_alarm: the share of normal images above the threshold that was wished for.
        supported_false_alarm: the smallest share that so many normal references can vouch for, 1 / (n + 1). For a
            smaller one the threshold is an extrapolation.
        normal_scores: of the normal references, each scored as if it were new.
        abnormal_scores: of the abnormal ones; empty without any.
        warning: what the references cannot support; None where there is nothing to say.
    """

    threshold: float
    false_alarm: float
    supported_false_alarm: float
    normal_scores: tuple[float, ...]
    abnormal_scores: tuple[float, ...] = ()
    warning: str | None = None

    @classmethod
    def from_scores(
        cls,
        normal_scores: Sequence[float],
        abnormal_scores: Sequence[float] = (),
        false_alarm: float = 0.05,
        num_normal: int | None = None,
    ) -> "Calibration":
        """The threshold for a wished false-alarm level.

        It lies as far above the mean of the normal scores as that share of new scores of a normal distribution
        would, the uncertainty of the mean included. Where this is beyond the middle of the two groups, they are
        not apart: the threshold is then the middle, since one that misses the known defects serves nobody, and the
        warning says that more false alarms are to be expected.

        Args:
            normal_scores: at least one.
            abnormal_scores: of known defects.
            false_alarm: above 0 and below 0.5.
            num_normal: normal references behind the scores; fewer than scores where these are of copies.
        """
        normal, abnormal = (tuple(float(score) for score in scores) for scores in (normal_scores, abnormal_scores))
        if not normal:
            raise ValueError("normal_scores: expected at least one, got none")
        if not all(math.isfinite(score) for score in normal + abnormal):
            raise ValueError(f"expected finite scores, got {normal} and {abnormal}")
        if not 0 < false_alarm < 0.5:
            raise ValueError(f"false_alarm: expected a share above 0 and below 0.5, got {false_alarm!r}")
        count = len(normal) if num_normal is None else num_normal
        limit = upper_limit(normal, false_alarm, count)
        threshold, warnings = limit, []
        if abnormal:
            middle = (fmean(normal) + fmean(abnormal)) / 2
            if fmean(abnormal) <= fmean(normal):
                warnings.append("the abnormal references score no higher than the normal ones")
            elif middle < limit:
                threshold = middle
                warnings.append(
                    f"normal and abnormal references overlap: the threshold for the wished false-alarm level would be "
                    f"{limit:.3f}, the middle of the two groups is {middle:.3f}; expect more false alarms, and misses"
                )
            elif min(abnormal) <= limit:
                missed = sum(score <= limit for score in abnormal)
                warnings.append(f"{missed} of {len(abnormal)} scores of abnormal references are below the threshold")
        supported = 1 / (count + 1)
        if false_alarm < supported:
            warnings.append(
                f"{count} normal picture(s) support a false-alarm level of {supported:.3g} at best, "
                f"{false_alarm:.3g} needs {math.ceil(1 / false_alarm) - 1}: the threshold is an extrapolation"
            )
        return cls(threshold, false_alarm, supported, normal, abnormal, "; ".join(warnings) or None)

    @property
    def overlap(self) -> bool:
        """Whether some abnormal reference scores no higher than a normal one or the threshold."""
        limit = max(self.threshold, *self.normal_scores)
        return any(score <= limit for score in self.abnormal_scores)

    def probability(self, score: float) -> float:
        """How sure that an image with this score is anomalous: a monotone scale of the score, not a frequency.

        0.5 at the threshold; logistic below it, so that the mean of the normal references gets 0.05, and above it,
        so that the mean of the abnormal ones gets 0.95. Without abnormal references the two sides are alike.
        """
        below = self.threshold - fmean(self.normal_scores)
        above = fmean(self.abnormal_scores) - self.threshold if self.abnormal_scores else below
        width = max(below if score < self.threshold else above, MINIMUM_SPREAD)
        steepness = math.log(CERTAINTY / (1 - CERTAINTY)) / width
        return (1 + math.tanh(steepness * (score - self.threshold) / 2)) / 2

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {
            "normal_scores": list(self.normal_scores),
            "abnormal_scores": list(self.abnormal_scores),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Calibration":
        """What `to_dict` gave."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            raise ValueError(f"calibration: expected the fields {sorted(names)}, got {sorted(values)}")
        scores = {name: tuple(values[name]) for name in ("normal_scores", "abnormal_scores")}
        return cls(**{**values, **scores})


def upper_limit(scores: Sequence[float], share: float, count: int) -> float:
    """What the score of a new part exceeds with probability `share`, if scores are normally distributed.

    The factor sqrt(1 + 1 / count) is for the mean of `count` parts, which is uncertain too.
    """
    spread = stdev(scores) if len(scores) > 1 else 0.0
    spread = max(COPY_SPREAD * spread if count < len(scores) else spread, MINIMUM_SPREAD)
    return fmean(scores) + NormalDist().inv_cdf(1 - share) * spread * math.sqrt(1 + 1 / count)
