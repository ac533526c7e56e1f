"""Intrinsic Deviation Encoder (IDE): Eq. 5-6, the only part with trained weights."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import initialization as init

# Root mean square of a channel of DINOv2's patch tokens after the layer norm: the scale in the paper.
FEATURE_SCALE = 2.4


class IntrinsicDeviationEncoder(nn.Module):
    """Decomposes the denoised deviations of anomalous patches into M intrinsic deviation vectors.

    M learned vectors T attend to the anomalous patches: the keys come from their features and positions, the values
    from their denoised deviations. The softmax is over the anomalous patches only, which is the limit gamma -> -inf
    of Eq. 6. As usual in multi-head attention, logits are divided by the square root of the width of a head.
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
        """Compute the intrinsic deviation vectors T* (R, M, C) of R reference sets.

        Args:
            features: (R, A, C) anomalous patches F^a, padded to the longest set.
            positions: (R, A, C) their sinusoidal positions.
            deviations: (R, A, C) their denoised deviations.
            valid: (R, A) bool, false where padded.
        """
        # Differs from the paper: features are brought to a common scale first, because attention and MLP, unlike
        # everything else here, depend on it, and the scales of backbones and stages differ by a factor of ten.
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
        """Split (R, n, C) into heads: (R, heads, n, C / heads)."""
        return tokens.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def init_weights(module: nn.Module) -> None:
    """Initialise a module; linear layers with a truncated normal, as in the released implementation."""
    if isinstance(module, nn.Linear):
        init.trunc_normal_(module.weight, mean=0.0, std=0.01, a=-0.03, b=0.03)
        init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        init.ones_(module.weight)
        init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight)


def root_mean_square(features: Tensor, valid: Tensor) -> Tensor:
    """Root mean square (R, 1, 1) of the features (R, A, C) of each set, over the valid (R, A) patches."""
    squares = features.square().mean(-1).where(valid, 0.0).sum(-1) / valid.sum(-1)
    return squares.sqrt().clamp_min(torch.finfo(features.dtype).tiny)[:, None, None]


def sinusoidal_positions(height: int, width: int, channels: int, device: torch.device | None = None) -> Tensor:
    """Sinusoidal 2-D position encoding (h, w, C): half of the channels for the row, half for the column."""
    quarter = math.ceil(channels / 4)
    frequencies = 10_000 ** (-torch.arange(quarter, device=device) / quarter)
    rows, columns = (
        torch.arange(side, device=device)[:, None] * frequencies for side in (height, width)
    )  # (side, quarter)
    rows = torch.cat([rows.sin(), rows.cos()], -1)[:, None].expand(-1, width, -1)
    columns = torch.cat([columns.sin(), columns.cos()], -1)[None].expand(height, -1, -1)
    return torch.cat([rows, columns], -1)[..., :channels]
