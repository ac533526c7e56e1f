"""A training run: it learns, repeats itself, leaves a model that loads, and refuses to be mixed with another."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoImageProcessor, AutoModel

from modeling_ideal.cli import main
from modeling_ideal.training import train as training
from modeling_ideal.training.head.report import summary
from modeling_ideal.training.head.starting_point import load_start
from modeling_ideal.training.train import train

from ..conftest import random_images, random_masks

PARTS = {"loss", "focal", "dice", "image", "discriminability", "orthogonality"}


def weights(arguments):
    return load_file(arguments.output / "model" / "model.safetensors")


def assert_same_weights(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def test_a_run_learns_and_leaves_a_model(arguments):
    chosen = arguments(epochs=6, learning_rate=1e-2, held_out=["bolt"], trackers=["tensorboard"], validation_every=4)
    record = train(chosen)
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
    assert str(chosen.output.parent) not in text  # where folders lie stays here


def test_the_seed_fixes_everything(arguments, tmp_path):
    runs = [arguments(output_dir=str(tmp_path / name), seed=seed) for name, seed in (("a", 3), ("b", 3), ("c", 4))]
    first, second, other = [train(run) for run in runs]
    assert_same_weights(weights(runs[0]), weights(runs[1]))
    assert first["steps"] == second["steps"] != other["steps"]


def test_accumulated_parts_make_the_same_step(arguments, tmp_path):
    whole = train(arguments())
    parts = train(arguments(output_dir=str(tmp_path / "parts"), gradient_accumulation=3))
    assert parts["steps"] == pytest.approx(whole["steps"], abs=1e-5)


def test_clipping_shortens_the_step(arguments, tmp_path, monkeypatch):
    lengths = []
    real = torch.optim.AdamW.step

    def measured(self, *rest):
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"]]
        lengths.append(torch.stack([gradient.norm() for gradient in gradients]).norm().item())
        return real(self, *rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", measured)
    train(arguments(max_grad_norm=1e-3))
    assert max(lengths) == pytest.approx(1e-3, rel=1e-3)


def test_a_finished_run_is_not_repeated(arguments, monkeypatch):
    record = train(arguments())
    monkeypatch.setattr(training, "load_start", None)
    assert train(arguments(keep_checkpoints=5)) == record


def test_other_arguments_in_the_same_folder_are_refused(arguments):
    train(arguments())
    with pytest.raises(ValueError, match=r"holds a run with other arguments \(epochs: 2 there, 3 now\): repeat those"):
        train(arguments(epochs=3))


def test_bfloat16_is_what_accelerate_makes_of_it(arguments, tmp_path):
    """The head computes in float32 in any case, so nothing is lost."""
    from accelerate.state import AcceleratorState

    plain = train(arguments())
    AcceleratorState._reset_state()  # one precision a process
    mixed = train(arguments(output_dir=str(tmp_path / "mixed"), mixed_precision="bf16"))
    AcceleratorState._reset_state()
    assert mixed["steps"] == pytest.approx(plain["steps"], abs=1e-5)


def test_fine_tuning_starts_from_the_model(arguments, model_folder):
    chosen = arguments(model=str(model_folder), epochs=1, learning_rate=1e-9, config=["attention_dropout=0"])
    train(chosen)
    before = load_file(model_folder / "model.safetensors")
    after = weights(chosen)
    for name, value in after.items():
        torch.testing.assert_close(value, before[name], atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"config: expected one of .* when fine-tuning a model, got 'num_neigh"):
        load_start(arguments(model=str(model_folder), config=["num_neighbors=3"]))


def test_the_summary_says_what_was_done(arguments, model_folder, capsys):
    chosen = arguments(model=str(model_folder), held_out=["bolt"])
    words = ["--model", chosen.model, "--source", chosen.source, "--output_dir", chosen.output_dir]
    words += ["--epochs", "2", "--episodes_per_epoch", "14", "--batch_size", "4", "--held_out", "bolt"]
    assert main(["train", *words, "--cache", chosen.cache]) == 0
    record = json.loads((chosen.output / "training.json").read_text())
    text = capsys.readouterr().out
    assert text == summary(chosen, record) + "\n"
    first, last = (record["epochs"][place]["loss"] for place in (0, -1))
    assert "Fine-tuned on parts (1 category: 9 normal and 6 anomalous pictures): 28 episodes in 2 epochs" in text
    assert f"first epoch {first:.4f}, of the last {last:.4f}" in text
    assert "Held out (bolt), N1A1: image AUROC" in text
    assert f"ideal evaluate --model {chosen.output / 'model'} --target DIR" in text
