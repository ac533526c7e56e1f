"""Benchmarks: each module has a `measure` that returns named figures, ratios in one run wherever possible."""
