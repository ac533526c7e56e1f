"""Cells and rows of Markdown tables."""

import pytest

from modeling_ideal.writing.tables import difference, markdown_table


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        (78.04, 78.5, "-0.5"),  # 78.0 - 78.5: what is shown adds up
        (97.94, 97.9, "+0.0"),
        (97.86, 97.9, "+0.0"),
        (None, 97.9, "-"),
        (97.9, None, "-"),
    ],
)
def test_differences(ours, theirs, shown):
    assert difference(ours, theirs) == shown


def test_a_bar_in_a_name_does_not_end_the_cell():
    assert markdown_table(["a|b"], [["c"]], words=1).splitlines()[0] == r"| a\|b |"
