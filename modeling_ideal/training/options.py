"""Command-line options as the fields of a dataclass: their types, defaults, help and checks in one place.

Imports the standard library alone, so that `ideal --help` answers at once.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, field, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

Options = TypeVar("Options")

_PLACEHOLDERS = {int: "N", float: "X"}


def option(words: str, default: Any = MISSING, **argparse_settings: Any) -> Any:
    """A dataclass field with its `--help`.

    Args:
        words: what the option does; the default is appended.
        default: the option is required without one.
        argparse_settings: for `add_argument`, where they cannot be told from the type of the field.
    """
    metadata = {"help": words, **argparse_settings}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def add_options(parser: argparse.ArgumentParser, options_type: type) -> None:
    """Add an option for each field of a dataclass, spelled --with_underscores or --with-dashes."""
    for each in fields(options_type):
        spellings = dict.fromkeys((f"--{each.name}", f"--{each.name.replace('_', '-')}"))
        # Options that are not given are left out, so that each default is written once, in the dataclass.
        parser.add_argument(*spellings, dest=each.name, default=argparse.SUPPRESS, **_argparse_settings(each))


def read_options(options_type: type[Options], parsed: argparse.Namespace) -> Options:
    """The dataclass filled from what a parser with `add_options` has read."""
    names = {each.name for each in fields(options_type)}  # type: ignore[arg-type]  # a dataclass
    return options_type(**{name: value for name, value in vars(parsed).items() if name in names})


def run_with_options(
    run: Callable[[Options], None],
    options_type: type[Options],
    prog: str,
    description: str,
    words: Sequence[str] | None = None,
) -> int:
    """Run a command with the options of the command line, and return its exit code: 3 for bad input."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    add_options(parser, options_type)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parsed = parser.parse_args(words)
    try:
        run(read_options(options_type, parsed))
    except (ValueError, OSError) as error:
        if parsed.debug:
            raise
        print(f"{prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 3
    return 0


def check_at_least(options: Any, smallest: Mapping[str, int]) -> None:
    """Refuse options that are smaller than they may be."""
    for name, least in smallest.items():
        value = getattr(options, name)
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")


def check_positive(options: Any, *names: str) -> None:
    """Refuse options that are given but are not finite numbers above 0."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{name}: expected a number > 0, got {value}")


def check_same_run(options: Any, saved: Mapping[str, Any], without_effect: Collection[str], folder: object) -> None:
    """Refuse to resume a run that was started with other options, except those without effect on its result."""
    differences = [
        f"{name}: {saved.get(name)!r} there, {value!r} now"
        for name, value in asdict(options).items()
        if name not in without_effect and value != saved.get(name)
    ]
    if differences:
        raise ValueError(
            f"{folder} holds a run with other options ({'; '.join(differences)}): "
            "repeat those to resume it, or choose another --output_dir"
        )


def _argparse_settings(each: Field) -> dict[str, Any]:
    """What `add_argument` is told of a field."""
    settings: dict[str, Any] = {}
    kind: Any = each.type
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]  # `int | None`
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
        settings["nargs"] = "+"
    if kind is bool:
        settings["action"] = "store_true"
    else:
        settings["type"] = kind
        if "choices" not in each.metadata:
            settings["metavar"] = _PLACEHOLDERS.get(kind)
    settings["required"] = each.default is MISSING and each.default_factory is MISSING
    return {**settings, **each.metadata, "help": _help(each)}


def _help(each: Field) -> str:
    default = each.default if each.default_factory is MISSING else " ".join(map(str, each.default_factory()))
    unsaid = default is MISSING or default is None or default is False or default == ""
    return each.metadata["help"] + ("" if unsaid else f" (default: {default})")
