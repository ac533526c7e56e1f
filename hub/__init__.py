"""From this repository to the Hugging Face Hub: build a model repository, verify it, publish it. Not installed."""
