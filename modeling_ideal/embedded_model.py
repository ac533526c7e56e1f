"""The small trained model that comes along, for whoever names no other."""

from pathlib import Path

NAME = "ideal-tiny"
PACKAGE = Path(__file__).resolve().parent


def default_model() -> Path:
    """The folder of the embedded model: installed with the package, or in the source tree beside it."""
    places = (PACKAGE / NAME, PACKAGE.parent / "hub" / NAME)
    for folder in places:
        if (folder / "config.json").is_file():
            return folder
    raise ValueError(f"expected a model with --model FOLDER, got none, and the embedded model {NAME} is not here")
