"""A small normalising flow: affine couplings with random rotations between them."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

CLAMP = 1.9  # of the logarithm of a coupling's scale
DAMPING = 0.1  # of what a subnet says, so that a new flow is nearly the identity
SCALE_UNIT, SCALE_SHARPNESS = 0.1, 0.5  # of the learned scale of each channel: 0.1 softplus_0.5(s)


class Coupling(nn.Module):
    """Scales and shifts half of the channels by what the other half says; then scales, shifts and rotates all.

    The rotation is random and fixed. As FrEIA's `AllInOneBlock` with a soft permutation, which ResAD uses.
    """

    rotation: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.kept, self.changed = channels - channels // 2, channels // 2
        hidden = 2 * self.kept
        self.subnet = nn.Sequential(nn.Linear(self.kept, hidden), nn.ReLU(), nn.Linear(hidden, 2 * self.changed))
        start = 2 * math.log(math.expm1(SCALE_SHARPNESS / SCALE_UNIT))  # a scale of 1
        self.scale = nn.Parameter(torch.full((channels,), start))
        self.offset = nn.Parameter(torch.zeros(channels))
        rotation = nn.init.orthogonal_(torch.empty(channels, channels))
        self.register_buffer("rotation", rotation)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (P, C) transformed, and the logarithm of the determinant (P,) of the Jacobian."""
        kept, changed = vectors.split([self.kept, self.changed], 1)
        logarithm, shift = (DAMPING * self.subnet(kept)).chunk(2, 1)
        logarithm = CLAMP * (logarithm / CLAMP).tanh()
        joined = torch.cat([kept, changed * logarithm.exp() + shift], 1)
        scale = SCALE_UNIT * softplus(self.scale, beta=SCALE_SHARPNESS)
        rotated = (joined * scale + self.offset) @ self.rotation.T
        return rotated, logarithm.sum(1) + scale.log().sum()


class Flow(nn.Module):
    """A density over vectors: couplings carry them to a standard normal distribution."""

    def __init__(self, channels: int, num_couplings: int) -> None:
        super().__init__()
        self.channels = channels
        self.couplings = nn.ModuleList(Coupling(channels) for _ in range(num_couplings))

    def forward(self, vectors: Tensor) -> Tensor:
        """The log-likelihood (P,) of vectors (P, C), divided by C."""
        determinant = vectors.new_zeros(len(vectors))
        for coupling in self.couplings:
            vectors, added = coupling(vectors)
            determinant = determinant + added
        normal = -0.5 * (vectors.square().sum(1) + self.channels * math.log(2 * math.pi))
        return (normal + determinant) / self.channels
