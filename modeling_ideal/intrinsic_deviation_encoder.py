"""Intrinsic Deviation Encoder (IDE): Eq. 5-6, the only part with trained weights."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import initialization as init

# Root mean square of a channel of DINOv2's normed patch tokens: the scale the paper's encoder works at.
FEATURE_SCALE = 2.4


class IntrinsicDeviationEncoder(nn.Module):
    """Decomposes the denoised deviations of anomalous patches into M intrinsic deviation vectors.

    M learned vectors T attend to the anomalous patches: keys from their features and positions, values from
    their denoised deviations. Softmax runs over the anomalous patches alone, which is what gamma -> -inf in
    Eq. 6 amounts to. Each head scales by the root of its own width, as multi-head attention does.
    """

    def __init__(self, hidden_size: int, num_vectors: int, num_heads: int, dropout: float, mlp_ratio: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.vectors = nn.Embedding(num_vectors, hidden_size)  # T
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.mlp_in = nn.Linear(hidden_size, int(hidden_size * mlp_ratio))
        self.mlp_out = nn.Linear(int(hidden_size * mlp_ratio), hidden_size)
        self.mlp_norm = nn.LayerNorm(hidden_size)

    def forward(self, features: Tensor, positions: Tensor, deviations: Tensor, valid: Tensor) -> Tensor:
        """Intrinsic deviation vectors T* (R, M, C) of R reference sets.

        Args:
            features: (R, A, C) anomalous patches F^a, padded to the longest set.
            positions: (R, A, C) their sinusoidal positions.
            deviations: (R, A, C) their denoised deviations.
            valid: (R, A) bool, false where padded.
        """
        # Differs from the paper: features come to a common scale first, because attention and MLP, unlike
        # everything else here, change with it, and backbones and stages differ by more than ten times.
        scale = FEATURE_SCALE / root_mean_square(features, valid)  # (R, 1, 1)
        dtype = self.query.weight.dtype
        keys = (features * scale + positions).to(dtype)
        values = (deviations * scale).to(dtype)
        vectors = self.vectors.weight.expand(len(features), -1, -1)  # (R, M, C)
        attended = F.scaled_dot_product_attention(
            self._split_heads(self.query(vectors)),
            self._split_heads(self.key(keys)),
            self._split_heads(self.value(values)),
            attn_mask=valid[:, None, None],  # (R, 1, 1, A)
            dropout_p=self.dropout if self.training else 0.0,
        )  # (R, heads, M, C / heads)
        vectors = self.attention_norm(vectors + self.output(attended.transpose(1, 2).flatten(2)))
        vectors = self.mlp_norm(vectors + self.mlp_out(F.gelu(self.mlp_in(vectors))))
        return vectors.float()

    def _split_heads(self, tokens: Tensor) -> Tensor:
        """(R, n, C) to (R, heads, n, C / heads)."""
        return tokens.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def init_weights(module: nn.Module) -> None:
    """Linear layers start from a truncated normal, as in the released implementation."""
    if isinstance(module, nn.Linear):
        init.trunc_normal_(module.weight, mean=0.0, std=0.01, a=-0.03, b=0.03)
        init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        init.ones_(module.weight)
        init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight)


def root_mean_square(features: Tensor, valid: Tensor) -> Tensor:
    """Of all channels of the valid patches of each set: (R, A, C), (R, A) to (R, 1, 1)."""
    squares = features.square().mean(-1).where(valid, 0.0).sum(-1) / valid.sum(-1)
    return squares.sqrt().clamp_min(torch.finfo(features.dtype).tiny)[:, None, None]


def sinusoidal_positions(height: int, width: int, channels: int, device: torch.device | None = None) -> Tensor:
    """2-D positions (h, w, C): half of the channels tell the row, half the column, each as sines and cosines."""
    quarter = math.ceil(channels / 4)
    frequencies = 10_000 ** (-torch.arange(quarter, device=device) / quarter)
    rows, columns = (
        torch.arange(side, device=device)[:, None] * frequencies for side in (height, width)
    )  # (side, quarter)
    rows = torch.cat([rows.sin(), rows.cos()], -1)[:, None].expand(-1, width, -1)
    columns = torch.cat([columns.sin(), columns.cos()], -1)[None].expand(height, -1, -1)
    return torch.cat([rows, columns], -1)[..., :channels]
