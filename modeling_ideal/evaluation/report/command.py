"""`ideal tables`: from results files to their tables."""

import argparse

from ..results_file import read_results
from .document import results_document, write_document


def make_tables(arguments: argparse.Namespace) -> str:
    """Make the tables of existing results; returns them, or an empty text if they went to a file."""
    results = [read_results(path) for path in arguments.results]
    if arguments.out is None:
        return results_document(results)
    write_document(arguments.out, results)
    return ""
