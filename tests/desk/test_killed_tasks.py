"""Whoever is killed while he adds a task leaves the old list or the new one, never half of one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from holdfast.store.home import Home

KILLS = 30
WRITER = """
import sys
from holdfast.agents.agent import Agent
from holdfast.agents.tasks import New
from holdfast.store.home import Home
with Home.open(sys.argv[1]) as home, Agent(home, "rio") as rio:
    print("up", flush=True)
    while True:
        done = rio.desk.tasks.add(New("read on"))
        print(done.task["id"], flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_whole_list_with_every_task_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    home, dice = str(tmp_path / "home"), random.Random(7)
    Home.open(home, create=True, timezone="UTC").close()
    file, acked = tmp_path / "home/state/rio/tasks.json", set[str]()
    kills = 0
    while kills < KILLS or (len(acked) < 5 and kills < 10 * KILLS):
        kills += 1
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, home], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(dice.uniform(0.0, 0.2))
        process.kill()
        acked |= {line for line in process.communicate()[0].splitlines() if line}
        if file.exists():
            ids = [task["id"] for task in json.loads(file.read_bytes())["tasks"]]
            assert len(set(ids)) == len(ids)
            assert acked <= set(ids)
    assert len(acked) >= 5
