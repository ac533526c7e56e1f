"""`ideal build`: make the folder of a Hub repository from the source files and a model."""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

import torch

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel, __version__
from modeling_ideal.saving import shipped_files
from modeling_ideal.writing.places import check_folder

from .card import check_figures, render_card
from .files import (
    CARD,
    DIRTY,
    ENDPOINT,
    HUB,
    MODEL_CARD,
    ONNX,
    RECORD,
    REFERENCES,
    check_imports,
    digests,
    read_record,
    source_commit,
)
from .verify import verify

DTYPES = {"float16": torch.float16, "float32": torch.float32}


def run(arguments: argparse.Namespace) -> str:
    """Build the repository that the arguments describe, and return a one-line summary."""
    out = build(
        Path(arguments.model),
        Path(arguments.out),
        dtype=arguments.dtype,
        onnx=arguments.onnx,
        card=Path(arguments.card or MODEL_CARD),
        results=[Path(path) for path in arguments.results],
        cost=Path(arguments.cost) if arguments.cost else None,
        overwrite=arguments.overwrite,
    )
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    said = f"{out}: {size / 1e6:.1f} MB, loads without this package and scores as the source does"
    dirty = read_record(out)["commit"].endswith(DIRTY)
    return f"{said}; built from uncommitted changes, so `ideal push` will refuse it" if dirty else said


def build(
    model_folder: Path,
    out: Path,
    *,
    dtype: str = "float32",
    onnx: bool = False,
    card: Path = MODEL_CARD,
    results: list[Path] | None = None,
    cost: Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Build a Hub repository, which appears only when it is complete and verified.

    Args:
        model_folder: an IDEAL model and its processor, from `save_pretrained`.
        out: the output folder.
        dtype: precision of the weights in the file, `"float32"` or `"float16"`; they load as float32 either way.
        onnx: whether to export the backbone too.
        card: template of the model card, to which the measured results are added.
        results: `results.json` files of `ideal evaluate`.
        cost: output of `ideal cost --json`.
        overwrite: whether to replace an earlier build in `out`; `references/` in it is kept. A folder with anything
            else in it is refused.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {sorted(DTYPES)}, got {dtype!r}")
    check_folder(out, "--out")
    if out.exists() and any(out.iterdir()):
        if not overwrite:
            raise ValueError(
                f"{out}: expected a new or empty folder, got one with files; --overwrite replaces a build"
            )
        read_record(out)  # nothing is replaced but what a build wrote
    check_imports(shipped_files())
    model, processor = _load(model_folder)
    measured = {model.fingerprint}
    _round(model, DTYPES[dtype])
    measured.add(model.fingerprint)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as name:
        made = Path(name, "repository")
        _save(model, processor, made, DTYPES[dtype])
        for file in ENDPOINT:
            shutil.copyfile(HUB / file, made / file)
        if onnx:
            from modeling_ideal.export.onnx import export_backbone

            export_backbone(model, made / ONNX)
        check_figures(results or [], cost, measured, sum(weight.numel() for weight in model.parameters()))
        (made / CARD).write_text(render_card(card.read_text(), results or [], cost))
        verify(made, model, processor)
        record = {"version": __version__, "commit": source_commit(), "dtype": dtype, "sha256": digests(made)}
        (made / RECORD).write_text(json.dumps(record, indent=2) + "\n")
        _replace(out, made, Path(name, "before"))
    return out


def _replace(out: Path, made: Path, before: Path) -> None:
    """Put a folder in the place of an earlier build, which is moved to `before`, except for its references."""
    if not out.exists():
        os.rename(made, out)
        return
    if (out / REFERENCES).is_dir():
        shutil.copytree(out / REFERENCES, made / REFERENCES)
    os.rename(out, before)
    try:
        os.rename(made, out)
    except OSError:
        os.rename(before, out)
        raise


def _load(folder: Path) -> tuple[IdealModel, IdealImageProcessor]:
    model, info = IdealModel.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if any(info.values()):
        raise ValueError(f"{folder}: expected exactly the weights of an IDEAL model, got {info}")
    return model, IdealImageProcessor.from_pretrained(folder)


def _round(model: IdealModel, dtype: torch.dtype) -> None:
    """Round the weights to the precision of the file, so that the published weights are those that are verified."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(parameter.to(dtype))
            if not parameter.isfinite().all():
                raise ValueError(f"{name}: expected weights that fit into {dtype}, got larger ones")


def _save(model: IdealModel, processor: IdealImageProcessor, folder: Path, dtype: torch.dtype) -> None:
    # Saving the pipeline writes the code, `auto_map` and `custom_pipelines`, and the weights as transformers does.
    AnomalyDetectionPipeline(model=model.to(dtype), image_processor=processor).save_pretrained(folder)
    model.to(torch.float32)  # exact, because they were rounded before
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = "float32"  # half precision is only for storage: it is slower on a CPU, and the head needs more
    config["backbone_config"].pop("_name_or_path", None)  # a folder on the machine where it was trained
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
