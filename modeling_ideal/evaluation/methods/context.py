"""What a method is given: the patches of a query, and its references."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from torch import Tensor

from ...anomalous_patches import AnomalousPatches, Erase, select_anomalous_patches
from ...normal_variation_eraser import Deviations, erase_normal_variation, unit
from ...turned_copies import turned_in_bank

NO_ERASER = 0.0  # erase strength that leaves the residual as it is

Result = TypeVar("Result")


@dataclass
class Context:
    """The references of a category as features. What several methods or queries need is computed once.

    Args:
        normal: (L1, h, w, C) or None.
        abnormal: (L2, h, w, C) or None.
        marked: (L2, h, w) bool, the anomalous patches; None to have them estimated.
        turn: encodes the normal references in other poses when a method asks for them: (L1, poses - 1, h, w, C).
        eraser: number of neighbours, number of components, erase strength and residual anchor of the NVE.
        share_normals: whether unmarked patches of abnormal references count as normal ones, as in `IdealConfig`.
    """

    normal: Tensor | None
    abnormal: Tensor | None
    marked: Tensor | None
    turn: Callable[[], Tensor] | None = None
    eraser: tuple[int, int, float, str] = (12, 4, 0.8, "nearest")
    share_normals: bool = False
    _computed: dict[Callable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, function: "Callable[[Context], Result]") -> Result:
        """`function` of this context, computed on the first call and remembered."""
        if function not in self._computed:
            self._computed[function] = function(self)
        return self._computed[function]

    @cached_property
    def shared(self) -> "Context":
        """The same references, their unmarked patches among the normal ones."""
        return replace(self, share_normals=True)

    def erase(self, strength: float | None = None) -> Erase:
        """The Normal Variation Eraser with these settings, or with another strength."""
        neighbors, components, own_strength, anchor = self.eraser
        return partial(
            erase_normal_variation,
            num_neighbors=neighbors,
            num_components=components,
            erase_strength=own_strength if strength is None else strength,
            residual_anchor=anchor,
        )

    @cached_property
    def turned(self) -> Tensor | None:
        """(L1, N, C) patches of the normal references in other poses, as `IdealModel` keeps them; None without."""
        if self.normal is None or self.turn is None:
            return None
        return turned_in_bank(self.turn(), self.normal)

    @cached_property
    def normals(self) -> Tensor:
        """(Q, C) normal patches; without normal references, the unmarked patches of the abnormal references."""
        if self.normal is not None and not (self.share_normals and self.abnormal is not None):
            return self.normal.flatten(0, 2)
        return self._anomalous_patches(None).normals

    @cached_property
    def directions(self) -> Tensor:
        """(Q, C) normal patches at length 1."""
        return unit(self.normals)

    @cached_property
    def anomalous(self) -> Tensor:
        """(A, C) anomalous patches of the abnormal references."""
        return self._anomalous_patches(None).features

    @cached_property
    def denoised(self) -> Tensor:
        """(A, C) denoised deviations of the anomalous patches."""
        return self._anomalous_patches(None).deviations

    @cached_property
    def residual(self) -> Tensor:
        """(A, C) residual deviations of the anomalous patches."""
        return self._anomalous_patches(NO_ERASER).deviations

    def _anomalous_patches(self, strength: float | None) -> AnomalousPatches:
        if self.abnormal is None:
            raise ValueError("expected abnormal references for this method, got none")
        normals = None if self.normal is None else self.normal.flatten(0, 2)
        return select_anomalous_patches(normals, self.abnormal, self.marked, self.erase(strength), self.share_normals)


@dataclass
class Query:
    """The patches (N, C) of a query, its references and grid (h, w). What several methods need is computed once."""

    patches: Tensor
    context: Context
    grid: tuple[int, int]

    @cached_property
    def deviations(self) -> Deviations:
        """Residual and denoised deviations, and the cosine to the nearest normal patch."""
        return self.context.erase()(self.patches, self.context.normals, self.context.directions)

    @cached_property
    def shared(self) -> "Query":
        """The same patches among references whose unmarked patches count as normal ones."""
        return Query(self.patches, self.context.shared, self.grid)
