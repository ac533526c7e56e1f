"""The backbone in other formats."""
