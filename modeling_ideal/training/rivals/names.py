"""Which rivals there are. Imports nothing, so that `ideal --help` answers at once."""

LEARNING_RATES = {"foundad": 1e-3, "nagl": 1e-5, "resad": 1e-3}
"""The rivals by name, with the peak learning rate of each.

The paper's, except for ResAD: its 1e-5 is for tens of thousands of steps, where 20 epochs here have 640.
"""
