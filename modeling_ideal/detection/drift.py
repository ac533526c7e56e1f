"""Notice when pictures differ from the references all over, because light, camera or product have changed.

A defect raises the scores of a few patches; another light raises those of nearly all. So the median patch score of a
picture says how far the whole picture is from the references, whatever defects it has. The references themselves, each
scored as if it were new, say how high that median may be for a good part, by the same statistics as the threshold.
"""

from collections import deque
from statistics import median

import numpy as np

from ..references import IdealReferences
from ..threshold import DEFAULT_PRIOR, Calibration

RECENT = 20  # pictures that are looked at together
FEWEST = 5  # pictures that say anything
RARE = 0.01  # the share of good parts that may be as far from the references as half of the recent pictures are


class DriftWatch:
    """Looks at pictures as they come.

    Args:
        references: the references; those without scores of their own pictures give no warning.
    """

    def __init__(self, references: IdealReferences) -> None:
        self.limit: float | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        typical = [] if references.scores is None else references.scores.typical_scores()
        if references.scores is not None and typical:
            prior = DEFAULT_PRIOR if references.calibration is None else references.calibration.prior
            count = references.scores.stand_for(typical)
            self.limit = Calibration.from_scores(typical, (), RARE, count, prior).threshold

    def add(self, anomaly_map: np.ndarray) -> str | None:
        """Take the anomaly map (H, W) of the next picture; returns a warning if the recent pictures have drifted."""
        self._recent.append(float(np.median(anomaly_map)))
        middle = median(self._recent)
        if self.limit is None or len(self._recent) < FEWEST or middle < self.limit:
            return None
        return (
            f"the last {len(self._recent)} pictures differ from the references all over, not only in places (median "
            f"{middle:.3g}, good parts stay below {self.limit:.3g}): if the light, the camera or the product has "
            "changed, verdicts mean little until there are new references"
        )
