"""Bad input, systematically: broken files, odd values and odd names, through every way in. `make fuzz` runs many."""
