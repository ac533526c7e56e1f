"""A trained rival as a method: it scores queries on the same features and references as all others."""

from typing import Any

from torch import Tensor

from ..matrix_products import fast_layers
from ..training.rivals.reference_set import gather_references
from ..training.rivals.rival import Rival
from .methods.context import Context, Query


class RivalMethod:
    """Patch scores (N,) of a query by a trained rival; what it needs of the references is computed once."""

    def __init__(self, rival: Rival) -> None:
        self.rival = rival.eval()
        self.fingerprint = rival.fingerprint  # once: it reads all weights

    def __call__(self, query: Query) -> Tensor:
        """Score a query; its layers are computed as those of the backbone are, so that costs can be compared."""
        features = query.patches.view(*query.grid, -1)  # (h, w, C)
        with fast_layers():
            return self.rival.score(features, query.context.once(self.encode)).flatten()

    def encode(self, context: Context) -> Any:
        """What the rival keeps of the references."""
        return self.rival.encode(gather_references(context.normal, context.abnormal, context.marked))
