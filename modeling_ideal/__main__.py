"""Run the command line `ideal` as `python -m modeling_ideal`."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
