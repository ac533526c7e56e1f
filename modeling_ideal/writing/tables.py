"""Tables of numbers, as Markdown or for a terminal."""

from collections.abc import Sequence

ABSENT = "-"
BAR = r"\|"  # escaped, because a bar in a name would end the cell


def number(value: float | None, digits: int = 1) -> str:
    """Format a number with some digits; a dash for None."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def with_spread(mean: float | None, spread: float | None) -> str:
    """Format a mean with its spread, for example 78.1 ± 0.4; without the spread if that is None."""
    return number(mean) if mean is None or spread is None else f"{mean:.1f} ± {spread:.1f}"


def difference(ours: float | None, theirs: float | None) -> str:
    """Format a difference with its sign, computed from the rounded numbers that the table shows."""
    if ours is None or theirs is None:
        return ABSENT
    return f"{round(round(ours, 1) - round(theirs, 1), 1) + 0.0:+.1f}"  # + 0.0 makes a negative zero positive


def pair(cells: Sequence[str]) -> str:
    """Join an image and a pixel figure as "image / pixel"; one dash if there is neither."""
    return ABSENT if set(cells) == {ABSENT} else " / ".join(cells)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Make a Markdown table, with the first `words` columns for words and the others for numbers; "" without rows."""
    if not rows:
        return ""
    alignment = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in (head, alignment, *rows))


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Make a table for a terminal, with the first `words` columns aligned left and the others right.

    A row may have more cells than the head; they follow without alignment, for remarks such as errors.
    """
    columns = range(len(head))
    widths = [max(len(row[column]) for row in (head, *rows)) for column in columns]
    lines = []
    for row in (head, *rows):
        cells = [row[column].ljust(widths[column]) for column in columns[:words]]
        cells += [row[column].rjust(widths[column]) for column in columns[words:]]
        lines.append("  ".join([*cells, *row[len(head) :]]).rstrip())
    return "\n".join(lines)
