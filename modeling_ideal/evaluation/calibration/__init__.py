"""How good calibrated thresholds are: the false-alarm level wished for and the one reached, and what is missed."""
