"""`python -m modeling_ideal` is the command line `ideal`."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
