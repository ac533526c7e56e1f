"""Export of the backbone to other formats."""
