"""Names of files that programs stumble over."""

import os

from numpy.random import Generator

from .samples import one_of

PIECES = (
    *(
        " ",
        "'",
        '"',
        "\n",
        "\t",
        "\r",
        "\x1b[31m",
        "\\",
        "%s",
        "{0}",
        "$(x)",
        "`x`",
        ";",
        "&",
        "|",
        "<script>",
        "&amp;",
    ),
    *(
        "*",
        "?",
        "[a]",
        "~",
        "-",
        "--out",
        "#",
        ",",
        "=1+1",
        "@",
        "ü",
        "部品",
        "\u202e",
        "\u3000",
        "é",
        "e\u0301",
        "😀",
    ),
    *(os.fsdecode(b"\xff"), os.fsdecode(b"\xc3"), "..", ".", "_mask", "CON", "0" * 120),
)


def odd_name(random: Generator) -> str:
    """A name of some odd pieces, which ends in .png and is not hidden."""
    pieces = [one_of(random, PIECES) for _ in range(int(random.integers(1, 6)))]
    name = os.fsdecode(os.fsencode("".join(pieces))[:250])
    return f"{'x' if name.startswith('.') else ''}{name}{one_of(random, ('.png', '.PNG', '.png'))}"
