"""A smaller bank of normal patches behind the endpoint's handler."""

import pytest

from .test_handler import GIVEN, IMAGE, UPLOADED, ask, folder, handler, pipe  # noqa: F401 - fixtures
from .uploads import picture


def test_a_smaller_bank_as_a_number_or_in_a_file(handler, folder, pipe):  # noqa: F811
    fewer = pipe.encode_references(**GIVEN, max_patches=9)
    fewer.save(folder / "references" / "few.safetensors")
    for references in ({"name": "few"}, {**UPLOADED, "max_patches": 9}):
        [found] = ask(handler, inputs=[IMAGE], references=references)
        assert found["score"] == pipe(picture(3), references=fewer)["score"]
    ask(handler, inputs=[IMAGE], references={"name": "bottle"})
    assert [len(known.normal_features[0]) for known in handler._known.values()] == [9, 9, 64]
    with pytest.raises(ValueError, match="max_patches: expected normal images with it, got none"):
        handler({"inputs": IMAGE, "references": {"abnormal": UPLOADED["abnormal"], "max_patches": 9}})
