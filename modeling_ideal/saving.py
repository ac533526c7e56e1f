"""The code that is saved with a model, so that model and pipeline load where the package is not installed."""

import os
import shutil
from pathlib import Path

AT_HOME = ("__init__", "__main__", "version")  # the only files in this folder that do not ship
PIPELINE_FILE = "pipeline_ideal"
PIPELINES = {
    "anomaly-detection": {"impl": f"{PIPELINE_FILE}.AnomalyDetectionPipeline", "pt": ["AutoModel"], "type": "image"}
}


def shipped_files() -> list[Path]:
    """The source files that ship: all others in this folder. In remote code, these are the files that were loaded."""
    return sorted(path for path in Path(__file__).resolve().parent.glob("*.py") if path.stem not in AT_HOME)


def copy_code(folder: str | os.PathLike) -> dict[str, dict]:
    """Copy the source files to a folder, and return the pipelines to name in its configuration."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file in shipped_files():
        if file.parent != Path(folder).resolve():
            shutil.copyfile(file, Path(folder, file.name))
    return PIPELINES if Path(folder, f"{PIPELINE_FILE}.py").is_file() else {}
