"""A trained rival as a method: it scores queries on the same features and references as all others."""

from typing import Any

from torch import Tensor

from ..training.rivals.reference_set import gather_references
from ..training.rivals.rival import Rival
from .methods.context import Context, Query


class RivalMethod:
    """Patch scores (N,) of a query by a trained rival; what it needs of the references is computed once."""

    def __init__(self, rival: Rival) -> None:
        self.rival = rival.eval()

    def __call__(self, query: Query) -> Tensor:
        """Score a query."""
        features = query.patches.view(*query.grid, -1)  # (h, w, C)
        return self.rival.score(features, query.context.once(self.encode)).flatten()

    def encode(self, context: Context) -> Any:
        """What the rival keeps of the references."""
        return self.rival.encode(gather_references(context.normal, context.abnormal, context.marked))
