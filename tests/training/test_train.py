"""A training run: it learns, repeats itself, leaves a model that loads, and refuses to be mixed with another."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from PIL import Image, ImageOps
from safetensors.torch import load_file
from transformers import AutoImageProcessor, AutoModel, pipeline

from modeling_ideal import IDEAL_TINY, IdealModel
from modeling_ideal.cli import main
from modeling_ideal.training.head import run
from modeling_ideal.training.head.report import summary
from modeling_ideal.training.head.run import train_head
from modeling_ideal.training.head.starting_point import load_start

from ..conftest import random_images, random_masks
from ..pictures import photograph
from ..test_remote_code import run as run_without_package
from .conftest import UNDISTURBED

SCORES_OF_A_PIPELINE = """
import numpy as np
from transformers import pipeline

pictures = np.load(sys.argv[2])
pipe = pipeline("anomaly-detection", model=sys.argv[1], trust_remote_code=True)
print(json.dumps([each["score"] for each in pipe(pictures, normal=pictures[:1], abnormal=pictures[1:2])]))
"""
PARTS = {"loss", "focal", "dice", "image", "discriminability", "orthogonality"}


def weights(options):
    return load_file(options.output / "model" / "model.safetensors")


def assert_same_weights(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


@pytest.fixture(scope="module")
def learnt(options_in, tmp_path_factory):
    """Options and record of a run that is long enough to learn something."""
    changes = {"epochs": 6, "learning_rate": 1e-2, "held_out": ["bolt"], "trackers": ["tensorboard"]}
    chosen = options_in(tmp_path_factory.mktemp("learnt"), validation_every=4, **changes)
    return chosen, train_head(chosen)


def test_a_run_learns_and_leaves_a_model(learnt):
    chosen, record = learnt
    assert json.loads((chosen.output / "training.json").read_text()) == record
    assert len(record["epochs"]) == 6
    assert len(record["steps"]) == 6 * 4
    assert all(epoch.keys() == PARTS for epoch in record["epochs"])
    assert record["epochs"][-1]["loss"] < record["epochs"][0]["loss"] - 0.05
    assert [each["epoch"] for each in record["validation"]] == [4, 6]
    assert list((chosen.output / "logs").rglob("events.out.tfevents.*"))

    model = AutoModel.from_pretrained(chosen.output / "model")
    assert model.fingerprint == record["model"]
    processor = AutoImageProcessor.from_pretrained(chosen.output / "model")
    assert (processor.size, processor.patch_size) == ({"height": 32, "width": 32}, 4)
    out = model(random_images(1), random_images(1, seed=1), random_images(1, seed=2), random_masks(1))
    assert torch.isfinite(out.scores).all()
    start, _ = load_start(chosen)
    for name, value in start.backbone.named_parameters():
        assert torch.equal(value, model.backbone.get_parameter(name)), name  # the backbone never changes
    assert not torch.equal(start.deviation_encoder.vectors.weight, model.deviation_encoder.vectors.weight)
    text = (chosen.output / "training.json").read_text() + (chosen.output / "model" / "config.json").read_text()
    assert str(chosen.output.parent) not in text  # no paths of this machine


def test_the_model_works_as_a_pipeline_without_the_package(learnt, tmp_path):
    folder = learnt[0].output / "model"
    pictures = np.stack([photograph(seed) for seed in range(3)])
    np.save(tmp_path / "pictures.npy", pictures)
    scores = run_without_package(SCORES_OF_A_PIPELINE, folder, tmp_path / "pictures.npy", folder=tmp_path)
    pipe = pipeline("anomaly-detection", model=str(folder))
    assert scores == [each["score"] for each in pipe(pictures, normal=pictures[:1], abnormal=pictures[1:2])]


def test_the_seed_fixes_everything(undisturbed, options_in, tmp_path):
    first, record = undisturbed
    again, other = (options_in(tmp_path / str(seed), **UNDISTURBED, seed=seed) for seed in (0, 1))
    assert train_head(again)["steps"] == record["steps"] != train_head(other)["steps"]
    assert_same_weights(weights(again), weights(first))


def test_accumulated_parts_make_the_same_step(undisturbed, options):
    parts = train_head(options(**UNDISTURBED, gradient_accumulation=3))
    assert parts["steps"] == pytest.approx(undisturbed[1]["steps"], abs=1e-5)


def test_clipping_shortens_the_step(options, monkeypatch):
    lengths = []
    real = torch.optim.AdamW.step

    def measured(self, *rest):
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"]]
        lengths.append(torch.stack([gradient.norm() for gradient in gradients]).norm().item())
        return real(self, *rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", measured)
    train_head(options(max_grad_norm=1e-3, epochs=1))
    assert max(lengths) == pytest.approx(1e-3, rel=1e-3)


def test_a_finished_run_is_not_repeated(undisturbed, monkeypatch):
    finished, record = undisturbed
    monkeypatch.setattr(run, "load_learner", None)
    assert train_head(replace(finished, keep_checkpoints=5)) == record


@pytest.mark.parametrize("changed", ["nut/train/good/000.png", "bolt/ground_truth/scratch/000_mask.png"])
def test_a_finished_run_is_refused_if_its_data_have_changed(options, source, changed, tmp_path):
    """In training and in validation: the record is of the old pictures and masks."""
    parts = shutil.copytree(source, tmp_path / "parts")
    chosen = options(source=str(parts), held_out=["bolt"], epochs=1, episodes_per_epoch=2)
    record = train_head(chosen)
    assert train_head(chosen) == record
    ImageOps.flip(Image.open(parts / changed)).save(parts / changed)
    with pytest.raises(ValueError, match=r"the pictures, masks or splits of .* have changed since this run"):
        train_head(chosen)


def test_other_options_in_the_same_folder_are_refused(undisturbed):
    with pytest.raises(ValueError, match=r"holds a run with other options \(epochs: 3 there, 4 now\): repeat those"):
        train_head(replace(undisturbed[0], epochs=4))


@pytest.mark.parametrize("wrong", [{"backbone": "nowhere"}, {"stage": "stage9"}, {"setups": ["N50A1"]}])
def test_a_start_that_is_refused_leaves_the_folder_to_the_next_one(options, wrong):
    right = options(epochs=1, episodes_per_epoch=2)
    with pytest.raises((ValueError, OSError)):
        train_head(replace(right, **wrong))
    assert len(train_head(right)["epochs"]) == 1


def test_training_is_in_float32_whatever_accelerate_is_set_to(options, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    used, real = [], run.HeadTraining.run

    def watched(self, batches):
        used.append((self.accelerator.mixed_precision, self.accelerator.scaler))
        return real(self, batches)

    monkeypatch.setattr(run.HeadTraining, "run", watched)
    AcceleratorState._reset_state()  # one precision a process
    train_head(options(epochs=1))
    AcceleratorState._reset_state()
    assert used == [("no", None)]


def test_mixed_precision_is_no_option(options, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--source", "parts", "--output_dir", "out", "--mixed_precision", "bf16"])
    assert "unrecognized arguments: --mixed_precision bf16" in capsys.readouterr().err


def test_fine_tuning_starts_from_the_model(options, model_folder):
    chosen = options(model=str(model_folder), epochs=1, learning_rate=1e-9, config=["attention_dropout=0"])
    train_head(chosen)
    before = load_file(model_folder / "model.safetensors")
    after = weights(chosen)
    for name, value in after.items():
        torch.testing.assert_close(value, before[name], atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"config: expected one of .* when fine-tuning a model, got 'num_neigh"):
        load_start(options(model=str(model_folder), config=["num_neighbors=3"]))


def test_the_summary_says_what_was_done(options, model_folder, capsys):
    chosen = options(model=str(model_folder), held_out=["bolt"])
    words = ["--model", chosen.model, "--source", chosen.source, "--output_dir", chosen.output_dir]
    words += ["--epochs", "2", "--episodes_per_epoch", "14", "--batch_size", "4", "--held_out", "bolt"]
    assert main(["train", *words, "--cache", chosen.cache]) == 0
    record = json.loads((chosen.output / "training.json").read_text())
    text = capsys.readouterr().out
    assert text == summary(chosen, record) + "\n"
    first, last = (record["epochs"][place]["loss"] for place in (0, -1))
    assert "Fine-tuned on parts (1 category: 9 normal and 6 anomalous pictures): 28 episodes in 2 epochs" in text
    assert f"Mean loss: {first:.4f} in the first epoch, {last:.4f} in the last." in text
    assert "Held out (bolt), N1A1: image AUROC" in text
    assert f"ideal evaluate --model {chosen.output / 'model'} --target DIR" in text


def test_a_new_encoder_does_not_inherit_the_prior_of_other_scores(options):
    start, _ = load_start(options(model=str(IDEAL_TINY)))
    assert start.deviation_encoder is not None
    assert start.config.score_prior is None
    assert IdealModel.from_pretrained(IDEAL_TINY).config.prior.level is not None
