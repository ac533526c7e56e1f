"""The rivals by name: making a new one, loading a trained one."""

import inspect
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from .foundad import Foundad
from .nagl import Nagl
from .resad import Resad
from .rival import CONFIG, WEIGHTS, Rival

RIVALS: dict[str, type[Rival]] = {rival.name: rival for rival in (Foundad, Nagl, Resad)}
"""Every rival that is trained."""


def make_rival(name: str, channels: int, settings: dict[str, Any]) -> Rival:
    """A new rival with random weights."""
    if name not in RIVALS:
        raise ValueError(f"method: expected one of {sorted(RIVALS)}, got {name!r}")
    signature = inspect.signature(RIVALS[name]).parameters
    known = {key: parameter.default for key, parameter in signature.items() if key != "channels"}
    for key, value in settings.items():
        if key not in known:
            raise ValueError(f"config: expected some of {list(known)} for {name}, got {key!r}")
        if type(value) is not type(known[key]):
            raise ValueError(f"config: expected {type(known[key]).__name__} for {key}, got {value!r}")
    return RIVALS[name](channels, **settings)


def is_rival(folder: str | Path) -> bool:
    """Whether a folder holds a trained rival, as opposed to a model."""
    try:
        config = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and {"method", "channels", "settings", "encoder"} <= set(config)


def load_rival(folder: str | Path) -> Rival:
    """A trained rival from its folder, ready to score."""
    folder = Path(folder)
    if not is_rival(folder):
        raise ValueError(f"{folder}: expected a folder that `ideal train --method` has written, got none")
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    rival = make_rival(config["method"], config["channels"], config["settings"])
    try:
        rival.load_state_dict(load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(f"{folder / WEIGHTS}: expected the weights of {rival.name}, got {error}") from None
    rival.encoder = config["encoder"]
    return rival.eval()
