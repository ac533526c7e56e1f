"""Fingerprints of models: the same for models that give the same scores, whatever release or file they came from.

A fingerprint is a hash of the settings that change scores and of the weights. It must be the same years from now, so
it depends on as little as possible of what a release of transformers may change:

- Of a configuration, only fields count that differ from the defaults of its class: a release may add or remove others.
- Of the name of a weight, only the numbers of the layers and its role in its layer count (`weight_role`): releases and
  torch.compile rename the rest.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

RULE = "3"  # of this file, and of scoring: a change that makes stored references wrong gets another number
# Fields of `IdealConfig` that may differ between the model that encodes references and the one that uses them.
NOT_SCORING = {
    "backbone_config": "hashed by its own rule",
    "image_size": "the processor's default; the processor's own settings are stored with references",
    "attention_dropout": "in training only",
    "loss_form": "in training only",
    "image_weight": "in training only",
    "discriminability_weight": "in training only",
    "orthogonality_weight": "in training only",
    "score_prior": "stored with references, in their calibration",
    "top_fraction": "references are calibrated again for another one",
}
# Fields of backbone configurations, beyond those that every configuration has, which do not change features.
NOT_FEATURES = {
    "drop_path_rate": "in training only",
    "initializer_range": "initial weights only",
    "layerscale_value": "initial weights only",
    "out_indices": "the same as out_features",
    "stage_names": "follows from the number of layers",
    "use_mask_token": "in pre-training only",
}
FROZEN_BYTES = 1024  # of a frozen weight, which are compared with what they were
COMPILED = "_orig_mod"  # what torch.compile adds to names
UNUSED_WEIGHT = "mask_token"  # in pre-training only
# Names that releases of transformers have given to the same part of a layer. If a further release renames a part, its
# name belongs here: the role, and with it all fingerprints, stay as they are.
ROLES = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "dense",
    "out_proj": "dense",
}


def scoring_settings(config: Any) -> dict[str, Any]:
    """The fields of an `IdealConfig` that change scores and are not at their default."""
    base = {field.name for field in fields(PreTrainedConfig)}
    return {
        field.name: _plain(getattr(config, field.name))
        for field in fields(config)
        if field.name not in base | set(NOT_SCORING) and getattr(config, field.name) != field.default
    }


def backbone_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """The fields of a backbone's configuration that change features and are not at their default."""
    incidental = set(PreTrainedConfig().to_dict()) | set(NOT_FEATURES)
    values, defaults = config.to_dict(), type(config)().to_dict()
    changed = {
        name: _plain(value)
        for name, value in values.items()
        if name not in incidental
        and not name.startswith("_")
        and "dropout" not in name
        and (name not in defaults or defaults[name] != value)
    }
    return {**changed, "model_type": values["model_type"], "out_features": values.get("out_features")}


def model_fingerprint(settings: Mapping[str, Any], backbone_config: PreTrainedConfig, *modules: nn.Module) -> str:
    """SHA-256 of settings, of a backbone's configuration, and of the weights of modules in turn."""
    everything = [RULE, dict(settings), backbone_settings(backbone_config)]
    digest = hashlib.sha256(json.dumps(everything, sort_keys=True, default=str).encode())
    for module in modules:
        digest.update(b"module")
        for part in sorted(_weight_digest(name, tensor) for name, tensor in weights(module)):
            digest.update(part)
    return digest.hexdigest()


class KnownFingerprint:
    """The fingerprint of a model, hashed again only if the model has changed."""

    def __init__(self) -> None:
        self._state: Any = None
        self._value = ""

    def find(self, config: Any, *modules: nn.Module) -> str:
        """Fingerprint of modules with the settings of an `IdealConfig`."""
        settings = scoring_settings(config)
        checksums = [weights_checksum(module) for module in modules]
        state = (settings, checksums)  # the backbone was built from its configuration, whatever happens to that now
        if state != self._state:
            self._value = model_fingerprint(settings, config.backbone_config, *modules)
            self._state = state
        return self._value


def weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and values of all that a module has learned: parameters, and buffers of floats that are saved with it."""
    parameters = dict(module.named_parameters())
    for name, value in module.state_dict(keep_vars=True).items():
        learned = name in parameters or (isinstance(value, Tensor) and value.is_floating_point())
        if learned and not name.endswith(UNUSED_WEIGHT):
            yield name, value


def weights_checksum(module: nn.Module) -> tuple[list, list]:
    """A value that changes with the weights, in a millisecond per million that can be trained.

    Fused optimizers and changes through `.data` do not raise a tensor's version, so contents are part of it: all of
    those that can be trained, and the first of each that is frozen, which an optimizer would change with the rest.
    """
    tensors = list(dict(weights(module)).values())
    # Weights created under inference_mode have no version.
    state = [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
    trained = {id(tensor) for tensor in module.parameters() if tensor.requires_grad}
    sums = [_sum(tensor, None if id(tensor) in trained else FROZEN_BYTES) for tensor in tensors]
    return state, torch.stack([part.to(sums[0].device) for part in sums]).tolist() if sums else []


def format_1_fingerprint(config: Any, model: nn.Module) -> str:
    """The fingerprint in files of the format ideal-references-1, which depends on the release of transformers."""
    incidental = ("_name_or_path", "architectures", "dtype", "transformers_version")
    backbone = {name: value for name, value in config.backbone_config.to_dict().items() if name not in incidental}
    digest = hashlib.sha256(json.dumps([list(config.encoding), backbone], sort_keys=True, default=str).encode())
    for name, tensor in model.named_parameters():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor).cpu().numpy().data)
    return digest.hexdigest()


def weight_role(name: str) -> str:
    """What a weight is for, whatever a release calls it: the numbers of its layers, its part of the layer, its kind.

    Two weights of one shape in one layer have different roles, so that a model in which they are swapped is another.
    """
    parts = [part for part in name.split(".") if part != COMPILED]
    numbers = [part for part in parts if part.isdigit()]
    return ".".join([*numbers, *(ROLES.get(part, part) for part in parts[-2:] if not part.isdigit())])


def _weight_digest(name: str, tensor: Tensor) -> bytes:
    digest = hashlib.sha256(f"{weight_role(name)} {tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(_bytes(tensor).cpu().numpy().data)
    return digest.digest()


def _bytes(tensor: Tensor) -> Tensor:
    """The contents of a tensor of any shape and type, as a vector of bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _sum(tensor: Tensor, first: int | None) -> Tensor:
    """The sum modulo 2^64 of a tensor's first bytes times their places; eight bytes are one number if possible."""
    content = _bytes(tensor)[:first]
    whole = len(content) % 8 == 0 and content.storage_offset() % 8 == 0
    numbers = content.view(torch.int64) if whole else content.to(torch.int64)
    places = torch.arange(1, 2 * len(numbers), 2, device=numbers.device)  # odd, so that no bit is lost
    return (numbers * places).sum()


def _plain(value: Any) -> Any:
    """Numbers as floats, so that 1 and 1.0 are the same setting."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
