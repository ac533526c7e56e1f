"""The references of a pipeline: set once, extended, or given with a call."""

import warnings
from typing import Any

from .reference_inputs import ReferenceInputs, check_names, check_usable
from .references import IdealReferences

EXTENSION = ("normal", "abnormal", "masks", "types", "false_alarm")  # the arguments of `extend_references`


class ReferenceKeeper:
    """The part of a pipeline that keeps references; `Pipeline` gives it `model` and `image_processor`."""

    model: Any
    image_processor: Any
    _forward_params: dict[str, Any]

    def set_references(self, references: Any = None, **pictures: Any) -> IdealReferences:
        """Encode or load the references for all calls without their own; arguments as in `__call__`.

        Returns:
            The references, for example for `pipe.set_references(normal=[...]).save("product.safetensors")`.
        """
        self._forward_params["references"] = self._references(ReferenceInputs.named(references, **pictures))
        return self._forward_params["references"]

    def encode_references(self, references: Any = None, **pictures: Any) -> IdealReferences:
        """Encode or load references as `set_references` does, without keeping them for other calls."""
        return self._references(ReferenceInputs.named(references, **pictures))

    def extend_references(self, references: Any = None, **pictures: Any) -> IdealReferences:
        """Add pictures to the references: a missed defect, or a good part that raised a false alarm.

        The result is what encoding all pictures together would give, calibration included, but only the new ones are
        encoded. A picture that the references have already is grouped with itself, as if it had been given twice.

        Args:
            references: a references file or an `IdealReferences` to extend; those of the pipeline then stay as they
                are. Default: the references of the pipeline, which the result replaces.
            pictures: `normal`, `abnormal`, `masks`, `types` and `false_alarm`, as in `__call__`. Masks and types go
                with every abnormal picture or with none. Default of `false_alarm`: as before.
        """
        check_names(pictures, EXTENSION)
        parts = (self.model, self.image_processor)
        known = self._references(None) if references is None else ReferenceInputs(references).encode(*parts)
        extended = _warned(ReferenceInputs(**pictures).extend(known, *parts), 3)
        if references is None:
            self._forward_params["references"] = extended
        return extended

    def _references(self, given: ReferenceInputs | None, stacklevel: int = 4) -> IdealReferences:
        """The references given with a call; without any, those of the pipeline, which are encoded on first use.

        `stacklevel` is that of `_warned`, 4 if a public method calls this itself.
        """
        kept = self._forward_params.get("references") if given is None else given
        if kept is None:
            raise ValueError(
                "expected references, got none: give normal=[...], abnormal=[...] or both, or references=FILE, with "
                "the call or once to pipe.set_references(...)"
            )
        if isinstance(kept, ReferenceInputs):
            kept = _warned(kept.encode(self.model, self.image_processor), stacklevel)
            if given is None:
                self._forward_params["references"] = kept
        else:  # model or processor may have changed since
            check_usable(kept, self.model, self.image_processor)
        return kept


def _warned(references: IdealReferences, stacklevel: int) -> IdealReferences:
    """The references, once the caller of a public method, so many calls above, has their warnings."""
    for sentence in references.warnings:
        warnings.warn(sentence, stacklevel=stacklevel)
    return references
