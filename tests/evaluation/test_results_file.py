"""Reading results.json: what is none is refused."""

import json

import pytest

from modeling_ideal.evaluation.results_file import read_results

CONTENT = {
    "target": "parts",
    "command": "",
    "model": None,
    "encoder": "fedcba9876543210",
    "seeds": [0],
    "smoothing": 4.0,
    "difficulty": {},
    "methods": {},
}


def test_what_was_written_is_read(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(CONTENT))
    assert read_results(tmp_path / "results.json") == CONTENT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("| not | JSON |", "got no JSON: Expecting value"),
        ("[1, 2]", "got a JSON list"),
        ('{"format": 1, "reference_sets": []}', "got an object without target, command, model, encoder, seeds"),
        ({"methods": []}, "got methods of another form"),
        (
            {"methods": {"ideal": {"setups": {"N1A1": {"general": {"mean": {}}}}}}},
            "got methods of another form .*spread",
        ),
        (
            {
                "methods": {
                    "ideal": {"setups": {"N1A1": {"general": dict.fromkeys(("mean", "spread", "categories"), 1)}}}
                }
            },
            "got methods whose metrics are not objects",
        ),
    ],
)
def test_files_that_are_no_results_are_refused(tmp_path, text, message):
    path = tmp_path / "results.json"
    path.write_text(text if isinstance(text, str) else json.dumps(CONTENT | text))
    with pytest.raises(ValueError, match=rf"results\.json: expected the results\.json of an evaluation, {message}"):
        read_results(path)
