"""Publish a model on the Hugging Face Hub: build a repository, verify it and push it."""
