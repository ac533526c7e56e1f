"""A decision threshold from the scores of references, with the statistics behind it.

The scores of a few good parts, each scored as if it were new, say how high the score of the next good part may be.
With few references their spread is as uncertain as their mean, so the logarithm of the next score has a Student's t
distribution. What is known of other products counts like a few further references: how much the scores of good parts
spread, and how high they are in proportion to how much the patches of the references differ among themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean, variance
from typing import Any

from .student_t import t_cdf, t_quantile

LOWEST_SCORE = 1e-3  # lower ones, of a picture that a reference shows too, count as this
HIGHEST_SCORE = 1.0
LARGEST_PRIOR = 100  # of logarithms and their spreads in a prior: the power of e of a larger one is no number
MOST_REFERENCES = 10**6  # that a prior may be worth
LEAST_DEGREES = 0.01  # of a prior; with fewer, the quantiles of Student's t are beyond counting
LEAST_SPREAD = 0.02  # of logarithms: a few references may agree by chance, or show the same part


@dataclass(frozen=True)
class ScorePrior:
    """What the scores of good parts of other products say about those of the next product.

    Scores are compared by their logarithms: the spread of a product's good parts is in proportion to their scores.
    A model has the values that were found for it on source data by
    `python -m modeling_ideal.evaluation.calibration.prior` (`IdealConfig.score_prior`); the default knows no level.

    Args:
        spread: standard deviation of the logarithms of the scores of a product's good parts.
        degrees: the number of references that this spread is worth.
        decrease: scores fall with the number n of normal references, as n to the power of minus this.
        copy_shift: mean logarithm of the score of a new good part less that of altered copies of the only reference.
        copy_spread: standard deviation of that difference.
        level: mean logarithm of the score of a good part less that of the `diversity` of the normal references; None
            if it is not known. With it a single reference needs no altered copies.
        level_weight: the number of references that the level is worth.
        alone: how much higher the level is without abnormal references.
        without_normal: how much higher the level is without normal references, when the normal patches are those
            around the marked defects.
    """

    spread: float = 0.142
    degrees: float = 3.0
    decrease: float = 0.168
    copy_shift: float = 0.29
    copy_spread: float = 0.35
    level: float | None = None
    level_weight: float = 1.0
    alone: float = 0.0
    without_normal: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "level" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"score_prior.{name}: expected a finite number, got {value!r}")
            largest = MOST_REFERENCES if name in ("degrees", "level_weight") else LARGEST_PRIOR
            if abs(value) > largest:
                raise ValueError(f"score_prior.{name}: expected a number within {largest}, got {value!r}")
        for name in ("spread", "degrees", "copy_spread", "level_weight"):
            if getattr(self, name) <= 0:
                raise ValueError(f"score_prior.{name}: expected a number > 0, got {getattr(self, name)!r}")
        if self.degrees < LEAST_DEGREES:
            raise ValueError(f"score_prior.degrees: expected a number >= {LEAST_DEGREES}, got {self.degrees!r}")


DEFAULT_PRIOR = ScorePrior()


@dataclass(frozen=True)
class Calibration:
    """A threshold for image scores, and the scores it is based on; made by `Calibration.from_scores`.

    Args:
        threshold: images with this score or a higher one are called anomalous.
        false_alarm: the requested false-alarm rate: the share of good parts that may reach the threshold.
        supported_false_alarm: the lowest false-alarm rate that n normal references, scored as if they were new, can
            support alone, 1 / (n + 1). A lower one rests on the shape of the distribution.
        location: centre of the distribution of the logarithm of the next good part's score.
        scale: its scale.
        degrees: its degrees of freedom.
        normal_scores: scores of the normal references, each scored as if it were new.
        abnormal_scores: scores of the abnormal references; may be empty.
        prior: what was known of other products.
        diversity: how much the patches of the normal references differ, as a score; None if it is not known.
        warning: what the references do not support; None if there is nothing to warn of.
    """

    threshold: float
    false_alarm: float
    supported_false_alarm: float
    location: float
    scale: float
    degrees: float
    normal_scores: tuple[float, ...]
    abnormal_scores: tuple[float, ...] = ()
    prior: ScorePrior = DEFAULT_PRIOR
    diversity: float | None = None
    warning: str | None = None

    @classmethod
    def from_scores(
        cls,
        normal_scores: Sequence[float],
        abnormal_scores: Sequence[float] = (),
        false_alarm: float = 0.05,
        num_normal: int | None = None,
        prior: ScorePrior = DEFAULT_PRIOR,
        diversity: float | None = None,
    ) -> "Calibration":
        """Find the threshold for the requested false-alarm rate.

        Abnormal references do not move it: they say how many of the known defects it finds.

        Args:
            normal_scores: scores of normal references, at least one.
            abnormal_scores: scores of abnormal references.
            false_alarm: the requested false-alarm rate, above 0 and below 0.5.
            num_normal: number of normal references, if it is not that of the scores. If it is lower, the scores are of
                copies; if it is higher, some references were scored, each against all others.
            prior: what is known of other products.
            diversity: how much the patches of the normal references differ, as a score; None if it is not known.
        """
        normal, abnormal = (tuple(float(score) for score in scores) for scores in (normal_scores, abnormal_scores))
        if not normal:
            raise ValueError("normal_scores: expected at least one, got none")
        if not all(math.isfinite(score) for score in normal + abnormal):
            raise ValueError(f"expected finite scores, got {normal} and {abnormal}")
        if not 0 < false_alarm < 0.5:
            raise ValueError(f"false_alarm: expected a share above 0 and below 0.5, got {false_alarm!r}")
        num_normal = len(normal) if num_normal is None else num_normal
        count = min(num_normal, len(normal))
        location, scale, degrees = next_score(normal, num_normal, prior, diversity)
        quantile = math.exp(min(location + scale * t_quantile(1 - false_alarm, degrees), 0.0))
        threshold = max(quantile, LOWEST_SCORE)  # within the range of scores
        supported = 1 / (count + 1)
        warning = "; ".join(_warnings(threshold, false_alarm, abnormal, count, num_normal)) or None
        return cls(
            threshold, false_alarm, supported, location, scale, degrees, normal, abnormal, prior, diversity, warning
        )

    def confidence(self, score: float) -> float:
        """The estimated share of good parts with a lower score, 0..1; 1 - `false_alarm` at the threshold."""
        return t_cdf((_logarithm(score) - self.location) / self.scale, self.degrees)

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
        if {*values, "diversity"} != names:  # which earlier releases did not know
            raise ValueError(f"calibration: expected the fields {sorted(names)}, got {sorted(values)}")
        scores = {name: tuple(values[name]) for name in ("normal_scores", "abnormal_scores")}
        return cls(**{**values, **scores, "prior": ScorePrior(**values["prior"])})


def next_score(
    scores: Sequence[float], num_normal: int, prior: ScorePrior, diversity: float | None = None
) -> tuple[float, float, float]:
    """Location, scale and degrees of freedom of the t distribution of the logarithm of the next good part's score.

    This is the posterior predictive distribution with a scaled inverse chi-squared prior of the variance and, if the
    level is known, a normal prior of the mean. The references were scored against one reference less than the next
    part will be, which raises their scores.

    Args:
        scores: of good parts that are references, each against the others, or of more copies of a single one.
        num_normal: the number of references, of which some may have no score. How much is known of the spread and the
            mean depends on the number of scores; how much higher they are than the next one, on that of references.
        prior: what is known of other products.
        diversity: see `Calibration`.
    """
    logarithms = [_logarithm(score) for score in scores]
    count = min(num_normal, len(scores))
    copies = count == 1 or len(scores) > num_normal
    if prior.level is None or diversity is None:
        expected, weight = 0.0, 0.0
        if copies:
            return fmean(logarithms) + prior.copy_shift, prior.copy_spread, prior.degrees
    else:
        expected, weight = _logarithm(diversity) + prior.level, prior.level_weight
        if copies:  # they show where a part varies, but not how much the next one does
            return expected, prior.spread * math.sqrt(1 + 1 / weight), prior.degrees
    mean = fmean(logarithms) - prior.decrease * math.log(num_normal / (num_normal - 1))
    total = weight + count
    degrees = prior.degrees + count - (0 if weight else 1)  # without a level, the mean costs a degree
    squares = prior.degrees * prior.spread**2 + (count - 1) * variance(logarithms)
    squares += weight * count / total * (mean - expected) ** 2
    spread = max(math.sqrt(squares / degrees), LEAST_SPREAD)
    return (weight * expected + count * mean) / total, spread * math.sqrt(1 + 1 / total), degrees


def _logarithm(score: float) -> float:
    return math.log(max(score, LOWEST_SCORE))


def _warnings(
    threshold: float, false_alarm: float, abnormal: Sequence[float], count: int, num_normal: int
) -> list[str]:
    """What the references do not support, in sentences; `count` of them were scored."""
    warnings = []
    missed = sum(score < threshold for score in abnormal)
    if missed:
        warnings.append(
            f"{missed} of {len(abnormal)} scores of abnormal references are below the threshold: expect to miss such "
            "defects, or accept more false alarms"
        )
    if threshold >= HIGHEST_SCORE:
        warnings.append("the threshold is the highest score there is: nothing will be called anomalous")
    supported = 1 / (count + 1)
    if false_alarm < supported:
        needed = math.ceil(1 / false_alarm) - 1 if false_alarm >= 1e-6 else "over a million"
        pictures = f"{count} good picture{'' if count == 1 else 's'}"
        if count < num_normal:
            pictures += f", as many of the {num_normal} as are scored,"
        warnings.append(
            f"{pictures} alone can support a false-alarm rate of "
            f"{100 * supported:.3g}% at best, and {100 * false_alarm:.3g}% needs {needed}: "
            "the threshold also rests on the scores of other products"
        )
    return warnings
