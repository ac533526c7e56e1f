"""The report on large scenes: they are made of what they say, and on real parts tiles find what resizing loses."""

import numpy as np
import pytest

from modeling_ideal import IDEAL_TINY, IdealImageProcessor, IdealModel
from modeling_ideal.data import load_records
from modeling_ideal.evaluation.tiling_report import CategoryScenes, SceneRecipe, compare, main


def test_a_scene_is_its_parts_side_by_side(target):
    records = load_records(target)
    defective = next(index for index, label in enumerate(records["label"]) if label)
    scene = SceneRecipe(2, [0, 1, defective, 2], 2).make(records)
    width, height = records[0]["image"].size
    assert scene.picture.shape == (2 * height, 2 * width, 3)
    np.testing.assert_array_equal(scene.picture[:height, :width], np.asarray(records[0]["image"].convert("RGB")))
    assert scene.mask[height:, :width].any()
    scene.mask[height:, :width] = False
    assert not scene.mask.any()


def test_scenes_share_no_part_between_references_and_no_defect_at_all(target):
    records = load_records(target)
    scenes = CategoryScenes.draw(records, "bolt", 1, 2, 3, seed=0)
    used = [part for recipe in scenes.normal for part in recipe.parts]
    assert len(set(used)) == len(used) == 2
    defects = [recipe.parts[recipe.place] for recipe in [*scenes.abnormal, *scenes.bad]]
    assert len(set(defects)) == len(defects) > 1
    assert all(recipe.place is None for recipe in [*scenes.normal, *scenes.good])
    with pytest.raises(ValueError, match=r"bolt: expected at least 1250 training parts, 625 good and 2 defective"):
        CategoryScenes.draw(records, "bolt", 25, 2, 3, seed=0)


def test_the_report_is_written(target, model_folder, tmp_path, capsys):
    out = tmp_path / "tiling.md"
    arguments = ["--model", str(model_folder), "--target", str(target), "--side", "1", "--scenes", "2"]
    assert main([*arguments, "--out", str(out), "--categories", "bolt"]) == 0
    text = out.read_text()
    assert text in capsys.readouterr().out
    for row in ("| bolt | resized |", "| bolt | in tiles |", "| mean | in tiles |"):
        assert row in text
    assert str(target.parent) not in text
    assert main([*arguments, "--out", str(tmp_path / "absent" / "tiling.md")]) == 3
    assert "--out: expected a file in an existing folder" in capsys.readouterr().err


@pytest.mark.real
def test_scenes_of_metal_plates_are_judged_right_in_tiles(real_data):
    """Nine metal plates in a scene of 1344 x 1344 pixels, one of them spoilt, against two scenes of good ones.

    Guards what works; fryum and brackets do not (docs/results).
    """
    records = load_records(real_data / "mpdd_448")
    scenes = CategoryScenes.draw(records, "metal_plate", 3, 2, 2, seed=0)
    model, processor = IdealModel.from_pretrained(IDEAL_TINY), IdealImageProcessor.from_pretrained(IDEAL_TINY)
    figures = compare(model, processor, records, scenes)
    (*_, resized_misses), (images, pixels, _, false_alarms, misses) = figures.values()
    assert images == 100
    assert pixels > 99.5
    assert (false_alarms, misses) == (0, 0)
    assert misses <= resized_misses
