"""`ideal watch` as a process, killed again and again."""

import os
import signal
import subprocess
import sys
from collections import Counter

from modeling_ideal.cli import main
from modeling_ideal.detection.log import read_log

from .test_line import SECONDS, at_line, line, lines_of, wait_for  # noqa: F401 - fixtures
from .test_watch import png

KILLS = int(os.environ.get("IDEAL_KILLS", "2"))  # 10 by hand


def test_a_process_that_is_killed_again_and_again_judges_every_picture_once(at_line):  # noqa: F811
    words = ["watch", "camera", "--references", "nut.safetensors", "--model", "model", "--out", "found"]
    words += ["--interval", "0.05", "--grace", "1", "--report-every", "0.2"]
    camera, log = at_line / "camera", at_line / "found" / "results.jsonl"
    camera.mkdir()
    expected = 0
    for round_number in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "modeling_ideal", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for index in range(8):  # a burst, one that is written slowly, one that is written twice
                (camera / f"{round_number}_{index}.png").write_bytes(png(10 * round_number + index))
            slow, content = camera / f"{round_number}_slow.png", png(1000 + round_number)
            slow.write_bytes(content[:150])
            target = expected + 3
            wait_for(lambda: lines_of(log) >= target, process)  # noqa: B023
            with open(slow, "ab") as stream:
                stream.write(content[150:])
            (camera / f"{round_number}_0.png").write_bytes(png(10 * round_number))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS)
        expected += 9
    assert main([*words, "--once", "--interval", "0.2"]) in (0, 1)
    entries = read_log(log)
    assert Counter(entry["image"] for entry in entries) == dict.fromkeys((path.name for path in camera.iterdir()), 1)
    assert len(entries) == expected
    assert not [entry for entry in entries if "error" in entry]


def test_wrong_seconds_are_refused(at_line, capsys):  # noqa: F811
    words = ["watch", "parts", "--references", "nut.safetensors", "--out", "found", "--once"]
    for wrong in ("--interval", "--grace", "--report-every"):
        assert main([*words, wrong, "0"]) == 3
        assert f"{wrong}: expected seconds > 0, got 0" in capsys.readouterr().err
    assert main([*words, "--batch-size", "0"]) == 3
    assert not (at_line / "found").exists()
