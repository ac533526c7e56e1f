"""A decision threshold from the scores of references, with the statistics behind it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist, fmean, stdev
from typing import Any

COPY_SPREAD = 4.0  # spread of scores of different parts relative to copies of one, measured on the source, MVTec AD
MINIMUM_SPREAD = 0.005  # a few references may agree by chance, or show the same image
CERTAINTY = 0.95  # `probability` of the mean abnormal reference; that of the mean normal one is 1 - CERTAINTY


@dataclass(frozen=True)
class Calibration:
    """A threshold for image scores, and the scores it is based on; made by `Calibration.from_scores`.

    Args:
        threshold: images with this score or a higher one are called anomalous.
        false_alarm: the requested false-alarm rate: the share of normal images above the threshold.
        supported_false_alarm: the lowest false-alarm rate that n normal references can support, 1 / (n + 1). For a
            lower one, the threshold is an extrapolation.
        normal_scores: scores of the normal references, each scored as if it were new.
        abnormal_scores: scores of the abnormal references; may be empty.
        warning: what the references do not support; None if there is nothing to warn of.
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
        """Find the threshold for the requested false-alarm rate.

        If scores are normally distributed, new normal images exceed this threshold with that rate, including the
        uncertainty of the mean. If it is above the midpoint of the normal and abnormal means, the two groups are not
        well separated; the threshold is then the midpoint, because a higher one would miss the known defects, and the
        warning says that more false alarms are to be expected.

        Args:
            normal_scores: scores of normal references, at least one.
            abnormal_scores: scores of abnormal references.
            false_alarm: the requested false-alarm rate, above 0 and below 0.5.
            num_normal: number of normal references, if it is lower than that of scores, which are then of copies.
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
                    "normal and abnormal references overlap: the requested false-alarm rate needs a threshold of "
                    f"{limit:.3f}, but the midpoint of the groups is {middle:.3f}; expect more false alarms and misses"
                )
            elif min(abnormal) <= limit:
                missed = sum(score <= limit for score in abnormal)
                warnings.append(f"{missed} of {len(abnormal)} scores of abnormal references are below the threshold")
        supported = 1 / (count + 1)
        if false_alarm < supported:
            warnings.append(
                f"{count} normal image(s) support a false-alarm rate of {supported:.3g} at best, "
                f"{false_alarm:.3g} needs {math.ceil(1 / false_alarm) - 1}: the threshold is an extrapolation"
            )
        return cls(threshold, false_alarm, supported, normal, abnormal, "; ".join(warnings) or None)

    @property
    def overlap(self) -> bool:
        """Whether any abnormal reference scores no higher than the threshold or a normal reference."""
        limit = max(self.threshold, *self.normal_scores)
        return any(score <= limit for score in self.abnormal_scores)

    def probability(self, score: float) -> float:
        """Confidence that an image with this score is anomalous: a monotone function of the score, not a frequency.

        It is 0.5 at the threshold, and logistic on either side, such that the mean of the normal references gets 0.05
        and the mean of the abnormal references 0.95. Without abnormal references, it is symmetric.
        """
        below = self.threshold - fmean(self.normal_scores)
        above = fmean(self.abnormal_scores) - self.threshold if self.abnormal_scores else below
        width = max(below if score < self.threshold else above, MINIMUM_SPREAD)
        steepness = math.log(CERTAINTY / (1 - CERTAINTY)) / width
        return (1 + math.tanh(steepness * (score - self.threshold) / 2)) / 2

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
        return asdict(self) | {
            "normal_scores": list(self.normal_scores),
            "abnormal_scores": list(self.abnormal_scores),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Calibration":
        """Make a calibration from the result of `to_dict`."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            raise ValueError(f"calibration: expected the fields {sorted(names)}, got {sorted(values)}")
        scores = {name: tuple(values[name]) for name in ("normal_scores", "abnormal_scores")}
        return cls(**{**values, **scores})


def upper_limit(scores: Sequence[float], share: float, count: int) -> float:
    """The limit that the score of a new part exceeds with probability `share`, if scores are normally distributed.

    The factor sqrt(1 + 1 / count) accounts for the uncertainty of the mean of `count` parts.
    """
    spread = stdev(scores) if len(scores) > 1 else 0.0
    spread = max(COPY_SPREAD * spread if count < len(scores) else spread, MINIMUM_SPREAD)
    return fmean(scores) + NormalDist().inv_cdf(1 - share) * spread * math.sqrt(1 + 1 / count)
