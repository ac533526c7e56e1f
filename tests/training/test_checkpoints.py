"""Checkpoints: what comes back is what was saved; the last few stay."""

import pytest
import torch

from modeling_ideal.training.head.checkpoints import Checkpoints, Progress
from modeling_ideal.training.head.schedule import build_optimizer

CPU = torch.device("cpu")


def test_the_last_ones_stay_and_come_back_exactly(tmp_path):
    parameter = torch.nn.Parameter(torch.randn(3))
    optimizer = build_optimizer([parameter], 1e-3)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2, source_digest="a")
    assert checkpoints.load(CPU) is None
    progress = Progress(validations=[{"epoch": 1, "setups": {"N1A1": {"mean": {"image_auroc": 61.5}}}}])
    for step in (5, 10, 100):
        parameter.grad = torch.randn(3)
        optimizer.step()
        progress.step, progress.seconds = step, step / 3
        progress.losses.append({"loss": 1 / step, "focal": 0.1})
        checkpoints.save(progress, {"weight": parameter.detach()}, optimizer.state_dict())
    assert sorted(file.name for file in checkpoints.folder.iterdir()) == ["step_00000010.pt", "step_00000100.pt"]
    loaded, head, state = checkpoints.load(CPU)
    assert loaded == progress
    assert torch.equal(head["weight"], parameter)
    fresh = build_optimizer([parameter], 1e-3)
    fresh.load_state_dict(state)
    for name, value in optimizer.state[parameter].items():
        assert torch.equal(fresh.state[parameter][name], value), name


def test_other_pictures_are_refused(tmp_path):
    Checkpoints(tmp_path, keep=1, source_digest="a").save(Progress(step=1), {}, {})
    with pytest.raises(ValueError, match="the pictures, masks or splits of the source have changed"):
        Checkpoints(tmp_path, keep=1, source_digest="b").load(CPU)


def test_an_interrupted_write_leaves_the_one_before(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1, source_digest="a")
    checkpoints.save(Progress(step=1), {}, {})
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(Progress(step=2), {}, {})
    loaded = checkpoints.load(CPU)
    assert loaded is not None
    assert loaded[0].step == 1


def test_foreign_and_damaged_files_are_refused_with_what_to_do(tmp_path):
    checkpoints = Checkpoints(tmp_path, 2, "source")
    torch.save({"progress": {"step": 3}, "epoch": 1}, tmp_path / "step_00000003.pt")
    with pytest.raises(ValueError, match=r"0003.pt: expected a state of training of this release, got one w.*head"):
        checkpoints.load(CPU)
    torch.save([1], tmp_path / "step_00000004.pt")
    with pytest.raises(ValueError, match=r"step_00000004.pt: expected a state of training of this release"):
        checkpoints.load(CPU)
    for content in (b"", b"no checkpoint", (tmp_path / "step_00000003.pt").read_bytes()[:-100]):
        (tmp_path / "step_00000005.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"0005.pt: expected a state of training, got \w+: .*; delete the file"):
            checkpoints.load(CPU)
