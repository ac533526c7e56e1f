"""The loss of a batch of episodes, as a module: Accelerate synchronises processes in `forward` alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...anomalous_patches import AnomalousPatches
from ...modeling_ideal import IdealModel
from ...normal_variation_eraser import Deviations, unit
from ...references import IdealReferences
from ...threads import map_in_threads


@dataclass
class EpisodeTensors:
    """One training episode, read from the feature cache. h x w patches, C channels, H x W pixels."""

    query: Tensor  # (h, w, C)
    normal: Tensor | None  # (L1, h, w, C)
    abnormal: Tensor  # (L2, h, w, C)
    marked: Tensor | None  # (L2, h, w) bool; None if a reference has no mask
    query_mask: Tensor  # (H, W) bool
    label: int
    seed: int  # of its dropout

    @property
    def references(self) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Normal references, abnormal references and their marks, as a batch of one set."""
        normal, marked = (None if part is None else part[None] for part in (self.normal, self.marked))
        return normal, self.abnormal[None], marked


class EpisodeLoss(nn.Module):
    """Mean losses over the episodes of a batch, which may differ in set-up and number of anomalous patches.

    References are encoded one episode at a time, with dropout seeded by the episode. What an episode adds to the
    loss depends neither on the rest of the batch nor on the process that computes it.
    """

    def __init__(self, model: IdealModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, episodes: Sequence[EpisodeTensors]) -> dict[str, Tensor]:
        """`"loss"` (Eq. 10) and its parts before weighting."""
        prepared = map_in_threads(self._prepare, episodes, episodes[0].query.device)
        references = join_references(
            [self._encode(episode, patches) for episode, (patches, _) in zip(episodes, prepared, strict=True)]
        )
        masks = torch.stack([episode.query_mask for episode in episodes])
        out = self.model.score_features(
            torch.stack([episode.query for episode in episodes]),
            references,
            (masks.shape[1], masks.shape[2]),
            masks,
            torch.tensor([episode.label for episode in episodes]),
            [deviations for _, deviations in prepared],
        )
        return {"loss": out.loss, **out.losses}  # type: ignore[dict-item]  # with targets there is a loss

    def _prepare(self, episode: EpisodeTensors) -> tuple[AnomalousPatches, Deviations]:
        """The part of the work that involves no weights: most of it, and it can run in any thread."""
        [patches] = self.model.anomalous_patches(*episode.references)
        deviations = self.model.deviations(episode.query.flatten(0, 1), patches.normals, unit(patches.normals))
        return patches, deviations

    def _encode(self, episode: EpisodeTensors, patches: AnomalousPatches) -> IdealReferences:
        torch.manual_seed(episode.seed)
        return self.model.encode_features(*episode.references, sets=[patches])


def join_references(sets: Sequence[IdealReferences]) -> IdealReferences:
    """Join reference sets that were encoded one by one into a batch."""
    return IdealReferences(
        normal_features=[features for part in sets for features in part.normal_features],
        deviation_vectors=torch.cat([part.deviation_vectors for part in sets if part.deviation_vectors is not None]),
        abnormal_features=[features for part in sets for features in part.abnormal_features],
        abnormal_deviations=[deviations for part in sets for deviations in part.abnormal_deviations],
    )
