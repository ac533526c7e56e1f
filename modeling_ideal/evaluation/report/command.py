"""`ideal tables`: from results files to their tables."""

import argparse
from pathlib import Path

from ...writing.places import check_file
from ..results_file import read_results
from .document import is_document, results_document, write_document


def make_tables(arguments: argparse.Namespace) -> str:
    """Make the tables of existing results; returns them, or an empty text if they went to a file."""
    if arguments.out is not None:
        check_file(Path(arguments.out), "--out", replaces=is_document, kind="tables made before")
    results = [read_results(path) for path in arguments.results]
    if arguments.out is None:
        return results_document(results)
    write_document(arguments.out, results)
    return ""
