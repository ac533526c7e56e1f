"""FoundAD (Zhai et al., 2026): a projector brings features back to the manifold of good ones; how far says how bad.

The projector is a small transformer. It learns from normal pictures alone: from their features, half of the time with
a part of them spoilt, it is to tell the features as they were. Of a query, what it changes is anomalous.

Differs from the paper: it is trained once on the source, not on the references of each target, and uses no references
to score, because the other methods here are not trained on targets either. A part is spoilt among the cached features,
not among pixels, because the backbone sees each picture once.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..head.objective import EpisodeTensors
from .reference_set import ReferenceFeatures
from .rival import Rival

DROPOUT = 0.2  # of the projector's input, in training
SPOILT_SHARE = (0.02, 0.25)  # of the area of a picture, as in CutPaste
LARGEST_ASPECT = 1 / 0.3
NOISE = 0.5  # on the pasted part, of a feature's standard deviation, in place of a change of colours
WEIGHT_DEVIATION = 0.02  # of a new linear layer


class Foundad(Rival):
    """FoundAD on the features of a frozen backbone.

    Args:
        channels: C of the features.
        depth: layers of the projector.
        width: channels of the projector.
        num_heads: its attention heads.
    """

    name = "foundad"

    def __init__(self, channels: int, depth: int = 6, width: int = 384, num_heads: int = 12) -> None:
        super().__init__(channels, {"depth": depth, "width": width, "num_heads": num_heads})
        if depth < 1 or num_heads < 1 or width < 1 or width % num_heads:
            raise ValueError(
                f"expected at least one layer, and heads that divide the width, got depth {depth}, width {width} and "
                f"{num_heads} heads"
            )
        self.embed = nn.Linear(channels, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, num_heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, channels)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=WEIGHT_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def encode(self, references: ReferenceFeatures) -> None:
        """Nothing: the references are not used."""

    def score(self, query: Tensor, encoded: None) -> Tensor:
        """The mean squared change of each patch."""
        patches = query.flatten(0, 1)  # (N, C)
        return (self.projected(patches[None])[0] - patches).square().mean(1).view(query.shape[:2])

    def projected(self, features: Tensor) -> Tensor:
        """Features (B, N, C) on the manifold of good ones: (B, N, C)."""
        start = embedded = self.embed(features)
        for layer in self.layers:
            embedded = layer(embedded) + start
        return self.project(self.norm(embedded))

    def forward(self, episodes: Sequence[EpisodeTensors]) -> dict[str, Tensor]:
        """The mean squared error of the projection of good pictures, spoilt or not."""
        good, spoilt = [], []
        for episode in episodes:
            if episode.normal is None:
                raise ValueError("setups: expected normal references, which this method learns from, got none")
            torch.manual_seed(episode.seed)
            picture = episode.normal[0]  # (h, w, C)
            given = spoil(picture) if torch.rand(()) < 0.5 else picture
            good.append(picture.flatten(0, 1))
            spoilt.append(F.dropout(given, DROPOUT, self.training).flatten(0, 1))
        loss = F.mse_loss(self.projected(torch.stack(spoilt)), torch.stack(good))
        return {"loss": loss}


def spoil(picture: Tensor) -> Tensor:
    """Features (h, w, C) with a rectangle of them pasted elsewhere, and noise on it."""
    height, width, _ = picture.shape
    smallest, largest = SPOILT_SHARE
    area = height * width * (smallest + (largest - smallest) * torch.rand(()).item())
    aspect = LARGEST_ASPECT ** (2 * torch.rand(()).item() - 1)
    rows = min(height, max(1, round(math.sqrt(area / aspect))))
    columns = min(width, max(1, round(math.sqrt(area * aspect))))
    (from_y, to_y), (from_x, to_x) = (
        torch.randint(side - part + 1, (2,)).tolist() for side, part in ((height, rows), (width, columns))
    )
    pasted = picture[from_y : from_y + rows, from_x : from_x + columns]
    noise = torch.randn(pasted.shape).to(picture) * picture.std(dim=(0, 1)) * NOISE
    result = picture.clone()
    result[to_y : to_y + rows, to_x : to_x + columns] = pasted + noise
    return result
