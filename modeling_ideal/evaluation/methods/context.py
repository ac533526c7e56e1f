"""What is compared: IDEAL, its ablations and the training-free baselines, all on the same patch features.

A method turns a `Query` among its references into patch scores (N,), higher = more anomalous. The
image score is the mean of the highest ones for all of them, so that methods differ in nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from ...anomalous_patches import Erase, select_anomalous_patches
from ...normal_variation_eraser import Deviations, erase_normal_variation, nearest_cosine, unit
from ...scoring import cosine_distance

EXPLAINED_VARIANCE = 0.99  # SubspaceAD keeps the directions that explain this share
CORESET_SHARE = 0.1  # PatchCore keeps this share of the normal patches
NO_ERASER = 0.0  # erase strength that leaves the residual as it is


@dataclass
class Context:
    """The references of a category as features; what several methods need is computed once.

    Args:
        normal: (L1, h, w, C) or None.
        abnormal: (L2, h, w, C) or None.
        marked: (L2, h, w) bool, the anomalous patches; None to have them estimated.
        rotated: (L1 * turns, h, w, C), features of rotated normal references, for the methods that ask for them.
        eraser: number of neighbours, number of components, erase strength and residual anchor of the NVE.
        share_normals: whether unmarked patches of abnormal references count as normal ones, as in `IdealConfig`.
    """

    normal: Tensor | None
    abnormal: Tensor | None
    marked: Tensor | None
    rotated: Tensor | None = None
    eraser: tuple[int, int, float, str] = (12, 4, 0.8, "nearest")
    share_normals: bool = False

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
    def normals(self) -> Tensor:
        """(Q, C) normal patches; without normal references the unmarked ones of the abnormal references."""
        if self.normal is not None and not (self.share_normals and self.abnormal is not None):
            return self.normal.flatten(0, 2)
        return self._anomalous(None)[0]

    @cached_property
    def directions(self) -> Tensor:
        """(Q, C) normal patches at length 1."""
        return unit(self.normals)

    @cached_property
    def anomalous(self) -> Tensor:
        """(A, C) anomalous patches of the abnormal references."""
        return self._anomalous(None)[1]

    @cached_property
    def denoised(self) -> Tensor:
        """(A, C) their denoised deviations."""
        return self._anomalous(None)[2]

    @cached_property
    def residual(self) -> Tensor:
        """(A, C) their residual deviations."""
        return self._anomalous(NO_ERASER)[2]

    @cached_property
    def rotated_directions(self) -> Tensor:
        """Patches of the rotated normal references at length 1."""
        if self.rotated is None:
            raise ValueError("expected features of rotated normal references for this method, got none")
        return unit(self.rotated.flatten(0, 2))

    @cached_property
    def subspace(self) -> tuple[Tensor, Tensor]:
        """Mean (C,) and basis (C, d) of the principal subspace of the normal patches."""
        return principal_subspace(self.normals)

    @cached_property
    def coreset(self) -> Tensor:
        """(K, C) normal patches that stand for all."""
        return coreset(self.normals)

    def _anomalous(self, strength: float | None) -> tuple[Tensor, Tensor, Tensor]:
        if self.abnormal is None:
            raise ValueError("expected abnormal references for this method, got none")
        normals = None if self.normal is None else self.normal.flatten(0, 2)
        found = select_anomalous_patches(normals, self.abnormal, self.marked, self.erase(strength), self.share_normals)
        return found.normals, found.features, found.deviations


@dataclass
class Query:
    """The patches (N, C) of a query among its references; what several methods need is computed once."""

    patches: Tensor
    context: Context

    @cached_property
    def deviations(self) -> Deviations:
        """Residual and denoised deviations, and the cosine to the nearest normal patch."""
        return self.context.erase()(self.patches, self.context.normals, self.context.directions)

    @cached_property
    def shared(self) -> "Query":
        """The same patches among references whose unmarked patches count as normal ones."""
        return Query(self.patches, self.context.shared)


Method = Callable[[Query], Tensor]


def normal_matching(query: Query) -> Tensor:
    """Cosine distance to the nearest normal patch (AnomalyDINO without rotations)."""
    return cosine_distance(query.deviations.nearest_cosine)


def rotated_normal_matching(query: Query) -> Tensor:
    """The same with eight rotations of every normal reference (AnomalyDINO)."""
    return cosine_distance(nearest_cosine(query.patches, query.context.rotated_directions))


def abnormal_matching(query: Query) -> Tensor:
    """Similarity to the nearest anomalous patch."""
    return 1 - cosine_distance(nearest_cosine(query.patches, unit(query.context.anomalous)))


def both_matching(query: Query) -> Tensor:
    """Normal and abnormal matching, averaged."""
    return (normal_matching(query) + abnormal_matching(query)) / 2


def residual_matching(query: Query) -> Tensor:
    """Normal matching, and similarity of the residual to the nearest one of an anomalous patch (no eraser)."""
    return (_alignment(query.deviations.residual, query.context.residual) + normal_matching(query)) / 2


def nve_matching(query: Query) -> Tensor:
    """Normal matching, and similarity of the denoised deviation to the nearest anomalous one (no encoder)."""
    return (_alignment(query.deviations.denoised, query.context.denoised) + normal_matching(query)) / 2


def shared_normal_matching(query: Query) -> Tensor:
    """Normal matching with the unmarked patches of the abnormal references among the normal ones."""
    return normal_matching(query.shared)


def shared_nve_matching(query: Query) -> Tensor:
    """The same for the matching of denoised deviations."""
    return nve_matching(query.shared)


def residual_length(query: Query) -> Tensor:
    """Length of the residual against that of the feature."""
    return _relative_length(query.deviations.residual, query.patches)


def nve_length(query: Query) -> Tensor:
    """Length of the denoised deviation against that of the feature."""
    return _relative_length(query.deviations.denoised, query.patches)


def subspace_reconstruction(query: Query) -> Tensor:
    """What a PCA of the normal patches does not reconstruct (SubspaceAD)."""
    mean, basis = query.context.subspace
    centred = query.patches - mean
    return (centred - centred @ basis @ basis.T).norm(dim=-1)


def coreset_distance(query: Query) -> Tensor:
    """Distance to the nearest of a coreset of the normal patches (PatchCore's memory)."""
    return torch.cdist(query.patches, query.context.coreset).amin(1)


METHODS: dict[str, Method] = {
    "abnormal_matching": abnormal_matching,
    "normal_matching": normal_matching,
    "rotated_normal_matching": rotated_normal_matching,
    "both_matching": both_matching,
    "residual_matching": residual_matching,
    "nve_matching": nve_matching,
    "shared_normal_matching": shared_normal_matching,
    "shared_nve_matching": shared_nve_matching,
    "residual_length": residual_length,
    "nve_length": nve_length,
    "subspace": subspace_reconstruction,
    "coreset": coreset_distance,
}


def principal_subspace(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (C,) and the fewest principal directions (C, d) that explain `EXPLAINED_VARIANCE` of (Q, C)."""
    mean = features.mean(0)
    values, vectors = torch.linalg.eigh((features - mean).T @ (features - mean))  # ascending
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    shares = values.cumsum(0) / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    return mean, vectors[:, : int((shares < EXPLAINED_VARIANCE).sum()) + 1]


def coreset(features: Tensor) -> Tensor:
    """Greedy k-center: the patches (K, C) of (Q, C) that leave no other far away, from the one nearest the mean."""
    count = max(1, int(len(features) * CORESET_SHARE))
    chosen = [int((features - features.mean(0)).norm(dim=-1).argmin())]
    distances = (features - features[chosen[0]]).norm(dim=-1)
    for _ in range(count - 1):
        chosen.append(int(distances.argmax()))
        distances = torch.minimum(distances, (features - features[chosen[-1]]).norm(dim=-1))
    return features[chosen]


def _alignment(deviations: Tensor, known: Tensor) -> Tensor:
    return 1 - cosine_distance(nearest_cosine(deviations, unit(known)))


def _relative_length(vectors: Tensor, patches: Tensor) -> Tensor:
    return vectors.norm(dim=-1) / patches.norm(dim=-1).clamp_min(torch.finfo(patches.dtype).tiny)
