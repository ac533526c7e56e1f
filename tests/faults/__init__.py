"""Kills at random moments, again and again: every file that is written is old or new, never half. `make faults`."""
