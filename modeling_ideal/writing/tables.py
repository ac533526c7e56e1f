"""Tables: figures as text, rows as Markdown or for a terminal."""

from collections.abc import Sequence

ABSENT = "-"
BAR = r"\|"  # a name may have one, and it would end the cell


def number(value: float | None, digits: int = 1) -> str:
    """Rounded; a dash where there is none."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def with_spread(mean: float | None, spread: float | None) -> str:
    """For example 78.1 ± 0.4; without the spread where that is unknown."""
    return number(mean) if mean is None or spread is None else f"{mean:.1f} ± {spread:.1f}"


def difference(ours: float | None, theirs: float | None) -> str:
    """With its sign, of the figures as they are shown, so that a reader who subtracts them gets the same."""
    if ours is None or theirs is None:
        return ABSENT
    return f"{round(round(ours, 1) - round(theirs, 1), 1) + 0.0:+.1f}"  # + 0.0 makes a negative zero positive


def pair(cells: Sequence[str]) -> str:
    """Image / pixel; one dash where there is neither."""
    return ABSENT if set(cells) == {ABSENT} else " / ".join(cells)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table whose first `words` columns hold words, the others figures; empty without rows."""
    if not rows:
        return ""
    alignment = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in (head, alignment, *rows))


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """The same for a terminal: columns of words aligned to the left, the figures after them to the right.

    A row may have cells beyond the head: they follow as they are, for remarks that need no column of their own.
    """
    columns = range(len(head))
    widths = [max(len(row[column]) for row in (head, *rows)) for column in columns]
    lines = []
    for row in (head, *rows):
        cells = [row[column].ljust(widths[column]) for column in columns[:words]]
        cells += [row[column].rjust(widths[column]) for column in columns[words:]]
        lines.append("  ".join([*cells, *row[len(head) :]]).rstrip())
    return "\n".join(lines)
