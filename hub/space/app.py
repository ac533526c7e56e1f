"""Starts `ideal app` as a Hugging Face Space, where other machines open it."""

import sys

from modeling_ideal.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["app", "--host", "0.0.0.0", *sys.argv[1:]]))  # noqa: S104 - a Space is for everybody
