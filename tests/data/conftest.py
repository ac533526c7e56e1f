"""Every test has a cache of its own, and no progress bars."""

import datasets
import pytest


@pytest.fixture(autouse=True)
def datasets_cache(tmp_path_factory, monkeypatch):
    """The cache that `datasets` uses by default, away from the user's."""
    cache = tmp_path_factory.mktemp("datasets_cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    datasets.disable_progress_bars()
    return cache
