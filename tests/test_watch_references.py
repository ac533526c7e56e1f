"""`ideal watch` when the references file changes: nothing is judged by other references than one thinks."""

from .test_watch import camera, log_of, png, run_once, watcher  # noqa: F401


def test_references_that_change_are_said_while_it_runs_and_when_it_starts_again(tmp_path, camera, capsys):  # noqa: F811
    (camera / "a.png").write_bytes(png(1))
    watching, file = watcher(tmp_path), tmp_path / "r.safetensors"
    file.write_bytes(b"references")  # again, and the same
    watching.run(once=True)
    assert capsys.readouterr().err == ""
    file.write_bytes(b"extended references")
    (camera / "b.png").write_bytes(png(2))
    watching.run(once=True)
    watching.close()
    error = capsys.readouterr().err
    assert error.count("r.safetensors' has changed since the start") == 1
    assert "has changed since the start" in (tmp_path / "out" / "report.html").read_text()
    assert len({entry["references"] for entry in log_of(tmp_path)}) == 1  # that of the start

    assert run_once(tmp_path) == []
    said = "2 of 2 earlier pictures were judged with other references, and keep their verdicts"
    assert said in capsys.readouterr().err
    assert said in (tmp_path / "out" / "report.html").read_text()
    (camera / "c.png").write_bytes(png(3))
    assert run_once(tmp_path) == ["c.png"]
    assert "2 of 2 earlier pictures" in capsys.readouterr().err
    assert len({entry["references"] for entry in log_of(tmp_path)}) == 2
