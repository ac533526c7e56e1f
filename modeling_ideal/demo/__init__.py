"""The main job on pictures that are rendered here, so that it runs on a fresh machine without any data."""
