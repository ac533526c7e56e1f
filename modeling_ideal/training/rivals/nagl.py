"""NAGL (Wang et al., 2025): proxies mine the residuals of abnormal references, then learn the anomalies of a query.

Residual mining: learned proxies attend to the anomalous patches of the abnormal references, with their residuals as
values. Anomaly feature learning: the result attends to the query, with its residuals as keys and its features as
values. A patch is scored by its similarity to these proxies and by its distance to the nearest normal patch.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...losses import query_losses, total_loss
from ...normal_variation_eraser import nearest_cosine, unit
from ...scoring import cosine_distance, upsample
from ..head.objective import EpisodeTensors
from .reference_set import ReferenceFeatures, gather_references, residuals
from .rival import Rival

TOP_PATCHES = 20  # whose mean is the image score in training
CHANNELS_OF_MAPS = 2  # the released Dice loss is the sum over the normal and the abnormal map
SMALL = 1e-6


class ProxyAttention(nn.Module):
    """Proxies attend to patches, then to each other; a layer norm after each (DETR's decoder without its MLP)."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.cross = nn.MultiheadAttention(channels, num_heads, batch_first=True)
        self.cross_norm = nn.LayerNorm(channels)
        self.mutual = nn.MultiheadAttention(channels, num_heads, batch_first=True)
        self.mutual_norm = nn.LayerNorm(channels)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, proxies: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(M, C) of proxies (M, C), and the keys and values (A, C) of A patches."""
        proxies = self.cross_norm(proxies + self.cross(proxies, keys, values, need_weights=False)[0])
        return self.mutual_norm(proxies + self.mutual(proxies, proxies, proxies, need_weights=False)[0])


class EncodedReferences(NamedTuple):
    """A reference set for scoring."""

    normals: Tensor  # (Q, C)
    has_normal: bool
    proxies: Tensor | None  # (M, C); None without abnormal references


class Nagl(Rival):
    """NAGL on the features of a frozen backbone.

    Args:
        channels: C of the features.
        num_proxies: number of learned proxies; the paper's choice is 25.
        num_heads: attention heads.
        denoise: take the eraser's denoised residuals instead of its own (the paper's appendix D).
    """

    name = "nagl"

    def __init__(self, channels: int, num_proxies: int = 25, num_heads: int = 4, denoise: bool = False) -> None:
        super().__init__(channels, {"num_proxies": num_proxies, "num_heads": num_heads, "denoise": denoise})
        if num_proxies < 1 or num_heads < 1 or channels % num_heads:
            raise ValueError(
                f"expected at least one proxy, and heads that divide the {channels} channels, got {num_proxies} "
                f"proxies and {num_heads} heads"
            )
        self.denoise = denoise
        self.proxies = nn.Embedding(num_proxies, channels)
        self.residual_mining = ProxyAttention(channels, num_heads)
        self.anomaly_learning = ProxyAttention(channels, num_heads)

    def encode(self, references: ReferenceFeatures) -> EncodedReferences:
        """Residual mining."""
        normals, abnormal, marked = references.normals, references.abnormal, references.marked
        if abnormal is None or marked is None:
            return EncodedReferences(normals, references.has_normal, None)
        # The released implementation numbers only the patches outside the mask, and so does this.
        positions = torch.stack([counted_positions(~mask, self.channels) for mask in marked])
        anomalous = abnormal[marked]  # (A, C)
        mined = self._residuals(anomalous, normals)
        proxies = self.residual_mining(self.proxies.weight, anomalous + positions[marked], mined)
        return EncodedReferences(normals, references.has_normal, proxies)

    def score(self, query: Tensor, encoded: EncodedReferences) -> Tensor:
        """The mean of the similarity to anomalies and the distance to normal; the one there is without the other."""
        normal, abnormal = self.similarities(query, encoded)
        return (abnormal + 1 - normal) / 2

    def similarities(self, query: Tensor, encoded: EncodedReferences) -> Tensor:
        """Similarities in 0..1 of a query (h, w, C) to normal patches and to anomalies: (2, h, w)."""
        height, width, _ = query.shape
        patches = query.flatten(0, 1)  # (N, C)
        normal = 1 - cosine_distance(nearest_cosine(patches, unit(encoded.normals)))
        if encoded.proxies is None:
            return torch.stack([normal, 1 - normal]).view(2, height, width)
        everything = torch.ones(height, width, dtype=torch.bool, device=query.device)
        positions = counted_positions(everything, self.channels).flatten(0, 1)
        keys = self._residuals(patches, encoded.normals) + positions
        proxies = self.anomaly_learning(encoded.proxies, keys, patches)
        abnormal = 1 - cosine_distance(unit(patches) @ unit(proxies).T).mean(1)
        if not encoded.has_normal:
            normal = 1 - abnormal
        return torch.stack([normal, abnormal]).view(2, height, width)

    def forward(self, episodes: Sequence[EpisodeTensors]) -> dict[str, Tensor]:
        """Focal and Dice loss of both maps, and the cross-entropy of the image scores."""
        similarities = []
        for episode in episodes:
            references = gather_references(episode.normal, episode.abnormal, episode.marked)
            similarities.append(self.similarities(episode.query, self.encode(references)))
        maps = torch.stack(similarities)  # (B, 2, h, w)
        scores = (maps[:, 1] + 1 - maps[:, 0]) / 2
        count = min(TOP_PATCHES, scores[0].numel())
        masks = torch.stack([episode.query_mask for episode in episodes])
        labels = torch.tensor([episode.label for episode in episodes], device=masks.device)
        losses = query_losses(
            upsample(scores, (masks.shape[1], masks.shape[2])),
            scores.flatten(1).topk(count).values.mean(1),
            masks,
            labels,
            maps,
        )
        return {"loss": total_loss(losses, {"dice": CHANNELS_OF_MAPS}), **losses}

    def _residuals(self, targets: Tensor, normals: Tensor) -> Tensor:
        """(P, C) of patches (P, C); its own are from the normal patch (Q, C) with the largest inner product."""
        if self.denoise:
            return residuals(targets, normals, denoise=True)
        return targets - normals[(targets @ normals.T).argmax(1)]


def counted_positions(counted: Tensor, channels: int) -> Tensor:
    """DETR's sinusoidal positions (h, w, C): the number of counted patches (h, w) so far, in each column and row.

    Numbers are relative to the last of a column or row, so that they run from 0 to 2 pi.
    """
    half = math.ceil(channels / 2)
    places = torch.arange(half, device=counted.device)
    periods = 10_000 ** (2 * (places // 2) / half)
    encoded = []
    for dim in (0, 1):
        numbers = counted.cumsum(dim).float()
        share = numbers / (numbers.narrow(dim, counted.shape[dim] - 1, 1) + SMALL)
        angles = 2 * math.pi * share[..., None] / periods  # (h, w, half)
        encoded.append(torch.where(places % 2 == 0, angles.sin(), angles.cos()))
    return torch.cat(encoded, -1)[..., :channels]
