"""Set-ups: the numbers of normal and abnormal references. Quick to import, for the command line."""

import re
from dataclasses import dataclass

SETTINGS = ("general", "hard")
"""Which queries a reference set is tested on; see `inference_episodes`."""


@dataclass(frozen=True)
class Setup:
    """Numbers of normal references (the paper's L1) and abnormal ones (L2), written N1A1 or N8A4."""

    num_normal: int
    num_abnormal: int

    def __post_init__(self) -> None:
        if min(self.num_normal, self.num_abnormal) < 0 or self.num_normal + self.num_abnormal == 0:
            raise ValueError(
                f"expected at least one reference, got {self.num_normal} normal, {self.num_abnormal} abnormal"
            )

    @classmethod
    def parse(cls, name: str) -> "Setup":
        """Parse a name such as "N4A1"."""
        match = re.fullmatch(r"N(\d+)A(\d+)", name)
        if match is None:
            raise ValueError(f"expected a set-up such as 'N1A1' or 'N8A4', got {name!r}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"N{self.num_normal}A{self.num_abnormal}"
