"""The IDEAL model: backbone, Normal Variation Eraser, Intrinsic Deviation Encoder, scoring and losses.

As described in Algorithm 1 of the paper (arXiv:2605.23231). Shapes: B queries; R reference sets (B, or 1 shared by the
batch) with L1 normal and L2 abnormal references each; h x w = N patches per image; C channels; M deviation vectors.
"""

from copy import deepcopy
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from .aligned_memory import align_weights
from .anomalous_patches import AnomalousPatches, normal_banks, pad_sets, select_sets, set_of_query
from .backbone import build_backbone, freeze, load_backbone, load_backbone_config, patch_features
from .configuration_ideal import TRAINING_FREE, IdealConfig
from .fingerprint import KnownFingerprint, format_1_fingerprint
from .input_checks import check_counts, check_finite, check_images, check_references, check_targets, checked_features
from .intrinsic_deviation_encoder import IntrinsicDeviationEncoder, init_weights
from .losses import query_losses, reference_losses, total_loss
from .normal_variation_eraser import Deviations, erase_normal_variation, nearest_cosine
from .outputs import IdealOutput
from .reference_features import reference_features
from .references import FORMAT, IdealReferences
from .scoring import Known, align, image_scores, patch_scores, smooth_patches, upsample

IMAGES_AT_ONCE = 4  # batch size for references, so that memory does not grow with their number


class IdealModel(PreTrainedModel):
    """Few-shot anomaly detector with normal and abnormal references as context.

    A new model is in evaluation mode. `train()` enables the dropout of the encoder; the backbone is always frozen.
    """

    config_class = IdealConfig
    base_model_prefix = "ideal"
    main_input_name = "query"
    input_modalities = ("image",)
    _supports_sdpa = True
    _keys_to_ignore_on_load_unexpected = (r"^backbone\..*layer\.\d+\.",)  # layers after the last stage in use

    def __init__(self, config: IdealConfig) -> None:
        super().__init__(config)
        config.check()
        self.backbone = build_backbone(config.backbone_config)
        self.deviation_encoder = (
            IntrinsicDeviationEncoder(config.hidden_size, *config.encoder) if config.deviation_encoder else None
        )
        self._fingerprint = KnownFingerprint()
        freeze(self.backbone)
        self.eval()
        self.post_init()

    @classmethod
    def from_backbone(cls, name_or_folder: str, *, dtype: torch.dtype = torch.float32, **config: Any) -> "IdealModel":
        """Make a model on a pre-trained backbone: training-free, or with a new encoder to train.

        Args:
            name_or_folder: name on the Hub or folder of the backbone, for example `"facebook/dinov2-small"`.
            dtype: data type of the weights.
            config: fields of `IdealConfig` or of the backbone's configuration, for example `out_features=["stage9"]`
                or `apply_layernorm=False`; the latter can also be given as a dictionary `backbone_config`. The default
                is a model without trained weights, ready for use; `deviation_encoder="attention"` gives it a new
                encoder, random until it is trained, and the paper's settings.
        """
        names = {field.name for field in fields(IdealConfig)}
        ours = {name: config.pop(name) for name in list(config) if name in names}
        ours = ours if ours.get("deviation_encoder") else {**deepcopy(TRAINING_FREE), **ours}
        ours["backbone_config"] = load_backbone_config(name_or_folder, ours.pop("backbone_config", None), **config)
        model = cls(IdealConfig(**ours)).to(dtype)
        model.backbone = load_backbone(name_or_folder, model.config.backbone_config, dtype)
        freeze(model.backbone)
        return model

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a model as in transformers, and freeze its backbone again, which loading weights undoes."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        align_weights(model)
        freeze(model.backbone)
        return loaded

    def train(self, mode: bool = True) -> "IdealModel":
        """Set the training mode of the encoder; the backbone stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise a module; transformers calls this for every module of a new model."""
        init_weights(module)

    def forward(
        self,
        query: Tensor,
        normal_refs: Tensor | None = None,
        abnormal_refs: Tensor | None = None,
        masks: Tensor | None = None,
        references: IdealReferences | None = None,
        query_masks: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> IdealOutput:
        """Score queries against their references, given as images or encoded.

        Args:
            query: (B, 3, H, W) images to score.
            normal_refs: (L1, 3, H, W), shared by the batch, or (B, L1, 3, H, W); or None.
            abnormal_refs: (L2, 3, H, W) or (B, L2, 3, H, W); or None, but not both.
            masks: (L2, H, W) or (B, L2, H, W), non-zero where an abnormal reference is anomalous; None to let the
                model mark the patches that deviate most.
            references: output of `encode_references`, instead of the three above.
            query_masks: (B, H, W), non-zero where anomalous; required with `labels` for the loss.
            labels: (B,) 0 for normal, 1 for anomalous; required with `query_masks` for the loss.
        """
        check_images("query", query, (4,), self.config.patch_size, self.config.num_channels)
        check_targets(query_masks, labels, query)
        if references is None:
            references = self._encode(normal_refs, abnormal_refs, masks)
        elif normal_refs is not None or abnormal_refs is not None or masks is not None:
            raise ValueError("expected encoded references or reference images, got both")
        elif getattr(references, "tile_size", 0) is not None:
            got = "tiles: use TiledDetector or the pipeline" if hasattr(references, "tile_size") else repr(references)
            raise ValueError(f"references: expected encoded whole pictures, got {got:.100}")
        else:
            self.check_encoded(references)
        features = self.extract_features(query)
        return self.score_features(features, references, (query.shape[2], query.shape[3]), query_masks, labels)

    @torch.no_grad()
    def encode_references(
        self,
        normal_refs: Tensor | None = None,
        abnormal_refs: Tensor | None = None,
        masks: Tensor | None = None,
    ) -> IdealReferences:
        """Encode reference images once, for any number of calls; never with dropout. Shapes as in `forward`."""
        training = self.training
        try:
            references = self.eval()._encode(normal_refs, abnormal_refs, masks)
        finally:
            self.train(training)
        references.fingerprint = self.fingerprint
        references.check_values()
        return references

    def check_encoded(self, references: IdealReferences) -> None:
        """Raise ValueError if references are damaged, of another model, or of this one before further training."""
        references.check_values()
        expected = self.fingerprint if references.file_format == FORMAT else format_1_fingerprint(self.config, self)
        if references.fingerprint != expected:
            raise ValueError(
                f"references: expected a set encoded by this model ({expected[:12]}), got one encoded by another "
                f"backbone, head or configuration ({references.fingerprint[:12] or 'none'}); encode it again"
            )
        references.check_parts(self.deviation_encoder is not None, self.config.alignment == "contrast")

    def extract_features(self, pixels: Tensor, at_once: int | None = None) -> Tensor:
        """Extract patch features (B, h, w, C), float32, from images (B, 3, H, W), `at_once` at a time; no gradient."""
        parts = pixels.to(self.device).split(at_once or len(pixels))
        features = [patch_features(self.backbone, part, self.config.patch_size) for part in parts]
        return checked_features(torch.cat(features), self.backbone)

    def encode_features(
        self,
        normal: Tensor | None,
        abnormal: Tensor | None,
        marked: Tensor | None,
        turned: Tensor | None = None,
        *,
        sets: list[AnomalousPatches] | None = None,
    ) -> IdealReferences:
        """Encode reference sets from patch features, which training caches.

        Args:
            normal: (R or 1, L1, h, w, C) or None.
            abnormal: (R or 1, L2, h, w, C) or None.
            marked: (R or 1, L2, h, w) bool patch masks; None to mark the patches that deviate most.
            turned: (R or 1, L1, P, C) patches of the normal references in other poses; None for none.
            sets: the result of `anomalous_patches`, if already known.
        """
        check_counts(normal=normal, abnormal=abnormal)
        num_normal = 0 if normal is None else normal.shape[1]
        if abnormal is None:
            return IdealReferences(normal_banks(normal, turned), num_normal=num_normal)
        sets = sets or self.anomalous_patches(normal, abnormal, marked, turned)
        vectors = None
        if self.deviation_encoder is not None:
            with self._full_precision():
                vectors = self.deviation_encoder(*pad_sets(sets))  # (R, M, C)
        return IdealReferences(
            normal_features=[part.normals for part in sets],
            deviation_vectors=vectors,
            abnormal_features=[part.features for part in sets] if self.config.alignment == "contrast" else [],
            abnormal_deviations=[part.deviations for part in sets],
            abnormal_sources=[part.sources for part in sets],
            num_normal=num_normal,
            num_abnormal=abnormal.shape[1],
            mask_source="estimated" if marked is None else "given",
        )

    def anomalous_patches(
        self, normal: Tensor | None, abnormal: Tensor, marked: Tensor | None, turned: Tensor | None = None
    ) -> list[AnomalousPatches]:
        """Select the encoder's inputs from reference sets, without any weights; arguments as in `encode_features`."""
        with self._full_precision():
            banks = normal_banks(normal, turned)
            return select_sets(banks, abnormal, marked, self.deviations, self.config.share_normals)

    def score_features(
        self,
        query: Tensor,
        references: IdealReferences,
        size: tuple[int, int],
        query_masks: Tensor | None = None,
        labels: Tensor | None = None,
        deviations: list[Deviations] | None = None,
        counted: Tensor | None = None,
        smoothed: bool = True,
    ) -> IdealOutput:
        """Score patch features (B, h, w, C) of images of `size` (H, W); `deviations` of each, if already known.

        Smoothing, if scores are to be `smoothed`, spreads no patch that is not `counted` (B, h, w).
        """
        check_counts(queries=query, references=references)
        if references.normal_features[0].device != query.device:
            references = references.to(query.device)
        similarities = losses = loss = None
        with self._full_precision():
            nearest, alignment = self._compare(query.flatten(1, 2), references, deviations)
            if alignment is not None and self.config.loss_form == "two_channel":
                similarities = torch.stack([(1 + nearest) / 2, alignment], 1).unflatten(2, query.shape[1:3])
            scores = patch_scores(nearest, alignment, self.config.alignment).unflatten(1, query.shape[1:3])
            scores = smooth_patches(scores, self.config.patch_smoothing, counted) if smoothed else scores  # (B, h, w)
            image = image_scores(scores, self.config.top_fraction)  # (B,)
            maps = upsample(scores, size)  # (B, H, W)
            if query_masks is None or labels is None:
                check_finite("patch scores", scores)  # training stops at a loss that is not finite
            else:
                masks, labels = query_masks.to(query.device), labels.to(query.device)
                losses = query_losses(maps, image, masks, labels, similarities)
                if references.deviation_vectors is not None:
                    losses |= reference_losses(references.abnormal_deviations, references.deviation_vectors)
                loss = total_loss(losses, self.config.loss_weights)
        vectors = references.deviation_vectors
        vectors = vectors if vectors is None else vectors.expand(len(query), -1, -1)  # (B, M, C)
        return IdealOutput(loss, losses, image, scores, maps, vectors)

    def _compare(
        self, patches: Tensor, references: IdealReferences, deviations: list[Deviations] | None
    ) -> tuple[Tensor, Tensor | None]:
        """Compare patches (B, N, C) with their references: the two terms of Eq. 9.

        Returns:
            Cosine to the nearest normal patch and alignment with the known anomalies, (B, N) each; the latter is None
            without abnormal references.
        """
        # One query at a time, so that scores do not depend on the batch and memory stays bounded.
        pairs = [(image, *references.normals(index)) for index, image in enumerate(patches)]
        if not references.abnormal_deviations:
            return torch.stack([nearest_cosine(image, directions) for image, _, directions in pairs]), None
        deviations = deviations or [self.deviations(*pair) for pair in pairs]
        nearest = torch.stack([part.nearest_cosine for part in deviations])  # (B, N)
        denoised = torch.stack([part.denoised for part in deviations])  # (B, N, C)
        parts = (references.abnormal_features, references.abnormal_deviations)
        known = Known(*([set_of_query(part, index) for index in range(len(patches)) if part] for part in parts))
        return nearest, align(denoised, patches, nearest, references.deviation_vectors, known, self.config.alignment)

    @property
    def fingerprint(self) -> str:
        """Hash of the weights and settings, which identifies the model that encoded a reference set; cached."""
        return self._fingerprint.find(self.config, *self.children())

    def _encode(
        self, normal_refs: Tensor | None, abnormal_refs: Tensor | None, masks: Tensor | None
    ) -> IdealReferences:
        """Encode reference images, with gradients for the encoder."""
        config = self.config
        check_references(normal_refs, abnormal_refs, masks, config.patch_size, config.num_channels)
        images = (normal_refs, abnormal_refs, masks)
        return self.encode_features(
            *reference_features(*images, config.patch_size, config.num_rotations, self.extract_in_parts)
        )

    def extract_in_parts(self, images: Tensor) -> Tensor:
        """`extract_features` of any number of reference images (n, 3, H, W), a few at a time."""
        return self.extract_features(images, IMAGES_AT_ONCE)

    def deviations(self, patches: Tensor, normals: Tensor, directions: Tensor) -> Deviations:
        """Deviations of patches (P, C) from normal patches (Q, C), with `directions` (Q, C) at length 1 (Eq. 1-4)."""
        with self._full_precision():
            return erase_normal_variation(patches, normals, directions, *self.config.eraser)

    def _full_precision(self) -> torch.autocast:
        """Switch autocast off: everything after the backbone is cheap, and eigenvectors need float32."""
        return torch.autocast(self.device.type, enabled=False)
