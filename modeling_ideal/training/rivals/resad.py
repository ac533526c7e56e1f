"""ResAD (Yao et al., NeurIPS 2024): the density of residuals, once a constraintor has drawn the normal ones together.

Residuals to the nearest normal patch vary less between products than features do. A small MLP, the constraintor, maps
normal residuals into a hypersphere and leaves anomalous ones where they are; a normalising flow learns the density of
the result, in which anomalies are to be unlikely. Abnormal references are not used to score.

Differs from the released code, which is that of a later journal version: no vector quantisation, no matching of
distributions and no second, abnormal centre, because the conference paper has none.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...masks import patch_masks
from ..head.objective import EpisodeTensors
from .flow import Flow
from .reference_set import ReferenceFeatures, gather_references, residuals
from .rival import Rival

MLP_RATIO = 4
BOUNDARY = 0.05  # the share of normal patches that may be less likely than the boundary
MARGIN = 0.1  # how much less likely than the boundary an anomaly is to be


class Resad(Rival):
    """ResAD on the features of a frozen backbone.

    Args:
        channels: C of the features.
        num_couplings: layers of the flow; the paper's choice is 8.
        denoise: take the eraser's denoised residuals instead of its own (the paper's appendix D).
    """

    name = "resad"

    def __init__(self, channels: int, num_couplings: int = 8, denoise: bool = False) -> None:
        super().__init__(channels, {"num_couplings": num_couplings, "denoise": denoise})
        if num_couplings < 1 or channels < 2:
            raise ValueError(f"expected at least one coupling and two channels, got {num_couplings} and {channels}")
        self.denoise = denoise
        self.constraintor = nn.Sequential(
            nn.Linear(channels, MLP_RATIO * channels), nn.GELU(), nn.Linear(MLP_RATIO * channels, channels)
        )
        self.flow = Flow(channels, num_couplings)

    def encode(self, references: ReferenceFeatures) -> Tensor:
        """The normal patches (Q, C)."""
        return references.normals

    def score(self, query: Tensor, encoded: Tensor) -> Tensor:
        """How unlikely each patch is: the density, per channel, less than nothing."""
        found = residuals(query.flatten(0, 1), encoded, self.denoise)
        return -self.flow(self.constraintor(found)).exp().view(query.shape[:2])

    def forward(self, episodes: Sequence[EpisodeTensors]) -> dict[str, Tensor]:
        """The loss of the constraintor and that of the flow, which learns from constrained residuals as they are."""
        found, anomalous = [], []
        for episode in episodes:
            references = gather_references(episode.normal, episode.abnormal, episode.marked)
            found.append(residuals(episode.query.flatten(0, 1), references.normals, self.denoise))
            (height, width), (rows, columns) = episode.query_mask.shape, episode.query.shape[:2]
            anomalous.append(patch_masks(episode.query_mask, (height // rows, width // columns)).flatten())
        given, marked = torch.cat(found), torch.cat(anomalous)
        constrained = self.constraintor(given)
        sphere = hypersphere_loss(constrained, given, marked)
        likelihood = self.flow(constrained.detach())
        density, boundary = density_loss(likelihood, marked), boundary_loss(likelihood, marked)
        return {"loss": sphere + density + boundary, "sphere": sphere, "density": density, "boundary": boundary}


def hypersphere_loss(constrained: Tensor, given: Tensor, marked: Tensor) -> Tensor:
    """Normal vectors (P, C) are to be short, anomalous ones, marked (P,), are to stay as they were given."""
    radii = (constrained.norm(dim=1) + 1).sqrt() - 1
    loss = mean_of(radii[~marked])
    return loss + F.mse_loss(constrained[marked], given[marked]) if marked.any() else loss


def density_loss(likelihood: Tensor, marked: Tensor) -> Tensor:
    """Minus the log-likelihood (P,) of what is not marked (P,), bounded below."""
    return mean_of(-F.logsigmoid(likelihood[~marked]))


def boundary_loss(likelihood: Tensor, marked: Tensor) -> Tensor:
    """Push normal patches above a boundary, and anomalous ones below it by a margin.

    Differs from the released code: the boundary is that of the batch, not a moving mean over batches, so that a step
    depends on its batch alone.
    """
    normal = likelihood[~marked]
    if not len(normal):
        return likelihood.sum() * 0
    boundary = normal.detach().sort().values[int(len(normal) * BOUNDARY)]
    below = normal[normal <= boundary]
    above = likelihood[marked & (likelihood >= boundary - MARGIN)]
    return mean_of(-F.logsigmoid(below - boundary)) + mean_of(-F.logsigmoid(boundary - MARGIN - above))


def mean_of(values: Tensor) -> Tensor:
    """The mean of values (n,), 0 if there are none."""
    return values.sum() / max(1, len(values))
