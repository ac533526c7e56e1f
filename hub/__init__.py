"""From a model to the Hugging Face Hub: build a repository, verify it, publish it."""
