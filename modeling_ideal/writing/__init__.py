"""Output: files that are complete or not there, and tables. Imports nothing else of this package."""
