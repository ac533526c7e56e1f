"""What a stored measurement or picture shows: a hash of all that it depends on."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...data.reference_sets import ReferenceSet
from ...modeling_ideal import IdealModel
from ...version import __version__
from .scorer import Scorer

FORMAT = 4  # of a measurement; a change in the computation needs a new number, or old files would be taken for new


def measurement_key(scorer: Scorer, references: ReferenceSet, methods: Sequence[str]) -> str:
    """A hash of all that determines the figures of some methods with a reference set.

    The pictures and masks count by their content, so that a file that changed is measured again. An untrained head,
    which is random, is not part of it unless it is one of the methods.
    """
    config = scorer.model.config
    everything = [
        [FORMAT, __version__],
        [sorted(methods), sorted(scorer.settings), scorer.smoothing],
        [config.eraser, config.top_fraction, config.patch_smoothing],  # of the methods without a head
        {
            **{name: _head(scorer.heads[name]) for name in methods if name in scorer.heads},
            **{name: scorer.rivals[name].fingerprint for name in methods if name in scorer.rivals},
        },
        scorer.cache.directory.name,  # a hash of the backbone and the preprocessing
        asdict(references),
        _records(scorer, references),
    ]
    return hashlib.blake2b(json.dumps(everything, sort_keys=True).encode(), digest_size=16).hexdigest()


def _head(head: IdealModel) -> list[Any]:
    """The weights of a trained head, and its settings."""
    config = head.config
    scoring = (config.alignment, config.top_fraction, config.patch_smoothing, config.share_normals)
    return [head.fingerprint, config.eraser, config.encoder, scoring]


def _records(scorer: Scorer, references: ReferenceSet) -> list[Any]:
    """The content of every possible query and of every reference: path, type of anomaly, picture and mask."""
    catalogue, cache = scorer.catalogue, scorer.cache
    given = {reference.path for reference in (*references.normal, *references.abnormal)}
    return [
        (path, catalogue.anomaly_types[index], catalogue.contents[index], cache.mask_keys[index])
        for index, path in enumerate(catalogue.paths)
        if path in given or (catalogue.categories[index], catalogue.splits[index]) == (references.category, "test")
    ]
