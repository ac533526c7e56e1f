"""What a saved model carries along, so that it loads as model and as pipeline where the package is not installed."""

import os
import shutil
from pathlib import Path

AT_HOME = ("__init__", "__main__", "version")  # the only files beside this one that are not shipped
PIPELINE_FILE = "pipeline_ideal"
PIPELINES = {
    "anomaly-detection": {"impl": f"{PIPELINE_FILE}.AnomalyDetectionPipeline", "pt": ["AutoModel"], "type": "image"}
}


def shipped_files() -> list[Path]:
    """The source files that ship: all beside this one. As remote code these are the ones that were loaded."""
    return sorted(path for path in Path(__file__).resolve().parent.glob("*.py") if path.stem not in AT_HOME)


def copy_code(folder: str | os.PathLike) -> dict[str, dict]:
    """Copy the source files to a folder; returns the pipelines that its configuration can name then."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file in shipped_files():
        if file.parent != Path(folder).resolve():
            shutil.copyfile(file, Path(folder, file.name))
    return PIPELINES if Path(folder, f"{PIPELINE_FILE}.py").is_file() else {}
