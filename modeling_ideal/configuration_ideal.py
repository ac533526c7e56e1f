"""Configuration of IDEAL: the paper's defaults around a frozen DINOv2 ViT-S/14."""

import math
import os
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, ClassVar

from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import logging

from .backbone_configuration import build_backbone_config
from .installed_pipelines import without_code
from .saving import copy_code
from .threshold import ScorePrior

logger = logging.get_logger(__name__)

WIDEST_SMOOTHING = 100  # patches; a Gaussian wider than a picture takes any memory

INTEGERS = (
    *("image_size", "num_neighbors", "num_components", "num_deviation_vectors", "num_attention_heads"),
    "num_rotations",
)
NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "erase_strength": ("in [0, 1]", lambda value: 0 <= value <= 1),
    "attention_dropout": ("in [0, 1)", lambda value: 0 <= value < 1),
    "mlp_ratio": ("> 0", lambda value: value > 0),
    "top_fraction": ("in (0, 1]", lambda value: 0 < value <= 1),
    "patch_smoothing": (f"in [0, {WIDEST_SMOOTHING}]", lambda value: 0 <= value <= WIDEST_SMOOTHING),
}
for _name in ("image_weight", "discriminability_weight", "orthogonality_weight"):
    NUMBERS[_name] = (">= 0", lambda value: value >= 0)
CHOICES = {
    "residual_anchor": ("nearest", "centroid"),
    "alignment": ("cosine", "euclidean", "contrast"),
    "loss_form": ("single_map", "two_channel"),
    "deviation_encoder": ("attention", None),
}

# Settings of a model without trained weights, chosen on source categories (docs/choices.md).
TRAINING_FREE: dict[str, Any] = {
    "deviation_encoder": None,
    "alignment": "contrast",
    "share_normals": True,
    "patch_smoothing": 0.5,
    "num_rotations": 8,
    # Of the form "contrast", with two backbones on the source alike (docs/choices.md).
    "score_prior": {
        "spread": 0.17,
        "degrees": 4.0,
        "decrease": 0.32,
        "level": -2.287,
        "level_weight": 0.5,
        "alone": 1.38,
        "without_normal": 0.49,
    },
}

REMOTE_CODE = ("auto_map", "custom_pipelines")  # the fields of a saved configuration that name its code
LOADED = "_loaded"  # marks values read from a file, which may have fields that this version does not know


class IdealConfig(PreTrainedConfig):
    """Configuration of an `IdealModel`. Symbols in brackets are the paper's.

    Args:
        backbone_config: configuration (or its dictionary) of a ViT backbone of transformers that returns patch
            features (C channels) of one stage, as in the paper, or of several, which are averaged at length 1.
            Default: DINOv2 ViT-S/14, last stage, after the final layer norm.
        image_size: side in pixels of the square that the processor resizes to by default.
        num_neighbors: number of normal neighbours of a patch (k, Eq. 2).
        num_components: number of principal directions of normal variation to erase (r, Eq. 3).
        erase_strength: share of the normal variation to erase (alpha, Eq. 4); 0 disables the eraser, for ablations.
        num_deviation_vectors: number of intrinsic deviation vectors (M, Eq. 5).
        num_attention_heads: number of heads of the encoder's cross-attention; must divide C.
        attention_dropout: dropout of the attention weights in training.
        mlp_ratio: hidden width of the feed-forward network as a multiple of C.
        residual_anchor: what is subtracted from a patch to get its residual: the `"nearest"` normal patch (Eq. 1),
            or the softmax(cosine)-weighted `"centroid"` of the k neighbours, as in the released implementation.
        alignment: similarity of a deviation and its projection: `"cosine"` (Eq. 9), or 1 - ||a - b|| / 2 of the
            unit vectors (`"euclidean"`, as in the released implementation). Differs from the paper: `"contrast"` is a
            factor of the distance to normal instead of a summand, and asks whether a patch looks more like the marked
            patches than like the normal ones, and deviates as they do.
        loss_form: Focal, Dice and cross-entropy on the `"single_map"` of Eq. 10, or on the `"two_channel"`
            (normal, abnormal) similarities, as in the released implementation.
        image_weight: weight of the image loss (Eq. 10).
        discriminability_weight: weight of the first term of Eq. 7 (lambda_1).
        orthogonality_weight: weight of the second term of Eq. 7 (lambda_2).
        top_fraction: share of the highest patch scores whose mean is the image score.
        patch_smoothing: standard deviation, in patches, of a Gaussian over the patch scores; 0 in the paper.
        share_normals: whether patches of abnormal references well outside the given masks join the normal patches;
            the paper does not use them.
        num_rotations: number of poses in which normal references count, turned about the centre by equal angles, 1 for
            as they are; of the turned copies of a picture, those patches join the normal ones that are least like it,
            as many as it has. Differs from the paper, and is not used in training.
        deviation_encoder: `"attention"` for the paper's encoder (Eq. 5-6), to be trained. Differs from the paper: None
            has no trained weights, and compares deviations with the nearest one that a reference shows.
        score_prior: what the scores of this model on other products say about the next product, for calibration: the
            fields of a `ScorePrior` that differ from its defaults.
    """

    model_type = "ideal"
    sub_configs: ClassVar[dict[str, type]] = {"backbone_config": AutoConfig}

    backbone_config: dict | PreTrainedConfig | None = None
    image_size: int = 448
    num_neighbors: int = 12
    num_components: int = 4
    erase_strength: float | int = 0.8
    num_deviation_vectors: int = 45
    num_attention_heads: int = 8
    attention_dropout: float | int = 0.1
    mlp_ratio: float | int = 4
    residual_anchor: str = "nearest"
    alignment: str = "cosine"
    loss_form: str = "single_map"
    image_weight: float | int = 1.0
    discriminability_weight: float | int = 1.0
    orthogonality_weight: float | int = 0.8
    top_fraction: float | int = 0.01
    patch_smoothing: float | int = 0.0
    share_normals: bool = False
    num_rotations: int = 1
    deviation_encoder: str | None = "attention"
    score_prior: dict | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        unknown = sorted(name for name in kwargs if not _belongs_to_transformers(name))
        if kwargs.pop(LOADED, False):
            if unknown:
                logger.info("the configuration has %s, which this version of IDEAL does not use", unknown)
        elif unknown:
            known = sorted({field.name for field in fields(IdealConfig)} - _base_fields())
            raise ValueError(f"IdealConfig expected fields among {known}, got unknown {unknown}")
        self.backbone_config = build_backbone_config(self.backbone_config)
        super().__post_init__(**without_code(kwargs))
        self.check()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Make a configuration from a dictionary, keeping unknown fields, for example those of a newer version."""
        return super().from_dict({**config_dict, LOADED: True}, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Save the configuration with all code, so that model and pipeline load without the package."""
        self.custom_pipelines = copy_code(save_directory)
        super().save_pretrained(save_directory, push_to_hub, **kwargs)

    @property
    def hidden_size(self) -> int:
        """Number of channels of a patch feature (C)."""
        return self._backbone().hidden_size

    @property
    def num_channels(self) -> int:
        """Number of channels of an image."""
        return getattr(self.backbone_config, "num_channels", 3)

    @property
    def patch_size(self) -> tuple[int, int]:
        """Height and width of a patch in pixels."""
        size = self._backbone().patch_size
        return (size, size) if isinstance(size, int) else (size[0], size[1])

    @property
    def eraser(self) -> tuple[int, int, float, str]:
        """Settings of the Normal Variation Eraser: k, r, alpha and the residual anchor."""
        return self.num_neighbors, self.num_components, self.erase_strength, self.residual_anchor

    @property
    def encoder(self) -> tuple[int, int, float, float]:
        """Settings of the Intrinsic Deviation Encoder: M, heads, dropout and MLP ratio."""
        return self.num_deviation_vectors, self.num_attention_heads, self.attention_dropout, self.mlp_ratio

    @property
    def encoding(self) -> tuple:
        """All settings that affect how references are encoded."""
        return (*self.eraser, "share_normals") if self.share_normals else self.eraser

    @property
    def prior(self) -> ScorePrior:
        """What is known of the scores of other products; a level only in the form of the score it was found for."""
        found = ScorePrior(**self.score_prior or {})
        contrast_alone = self.alignment == "contrast" and self.deviation_encoder is None
        return found if contrast_alone else replace(found, level=None)

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weights of the parts of the loss that have one (Eq. 7 and 10)."""
        return {
            "image": self.image_weight,
            "discriminability": self.discriminability_weight,
            "orthogonality": self.orthogonality_weight,
        }

    def _backbone(self) -> Any:
        return self.backbone_config  # always a config object after __post_init__

    def check(self) -> None:
        """Raise ValueError for the first invalid value, with what was expected and what was given."""
        for name in INTEGERS:
            _require(_is_integer(getattr(self, name)), name, "an integer", getattr(self, name))
            _require(getattr(self, name) >= 1, name, "an integer >= 1", getattr(self, name))
        for name, (expected, holds) in NUMBERS.items():
            value = getattr(self, name)
            _require(_is_number(value) and math.isfinite(value) and holds(value), name, f"a number {expected}", value)
        for name, choices in CHOICES.items():
            _require(getattr(self, name) in choices, name, f"one of {choices}", getattr(self, name))
        _require(isinstance(self.share_normals, bool), "share_normals", "True or False", self.share_normals)
        known = [field.name for field in fields(ScorePrior)]
        prior = {} if self.score_prior is None else self.score_prior
        fits = isinstance(prior, dict) and set(prior) <= set(known)
        _require(fits, "score_prior", f"fields among {known}", prior)
        ScorePrior(**prior)  # checks the values
        _require(self.num_neighbors >= 2, "num_neighbors", "an integer >= 2", self.num_neighbors)
        _require(
            self.num_components < self.num_neighbors,
            "num_components",
            f"1 <= num_components < num_neighbors = {self.num_neighbors}",
            self.num_components,
        )
        _require(
            self.deviation_encoder is None or self.hidden_size % self.num_attention_heads == 0,
            "num_attention_heads",
            f"a divisor of the backbone's width {self.hidden_size}",
            self.num_attention_heads,
        )
        _require(
            all(self.image_size % side == 0 for side in self.patch_size),
            "image_size",
            f"a multiple of the backbone's patch size {self.patch_size}",
            self.image_size,
        )


def _require(holds: bool, name: str, expected: str, value: object) -> None:
    if not holds:
        raise ValueError(f"IdealConfig.{name}: expected {expected}, got {value!r}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _belongs_to_transformers(name: str) -> bool:
    """Whether a keyword is accepted by every configuration of transformers, or is internal to it."""
    names = (name, f"_{name}")  # `attn_implementation` is kept as `_attn_implementation`
    return name.startswith("_") or name in REMOTE_CODE or any(hasattr(PreTrainedConfig, each) for each in names)


def _base_fields() -> set[str]:
    return {field.name for field in fields(PreTrainedConfig)}
