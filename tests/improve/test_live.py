"""A run at a terminal shows its scores as they come."""

from __future__ import annotations

import os
import pty
import sys

from tests.improve.campaigns import Campaigns


def test_a_run_draws_its_scores_at_the_foot_of_the_terminal(desk: Campaigns) -> None:
    desk.init("--planners", "1", "--direction", "higher", "--target", "40")
    desk.play({"1/executor_1": {"factor": 4}, "2/executor_1": {"factor": 5, "sleep": 1.2}})
    words = ["--home", str(desk.home), "improve", "run", "sort", "--rounds", "2"]
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "holdfast", *words])
    shown = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is gone
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = shown.decode().replace("\r\n", "\n")
    drawn, told = text.index("round 1 to 1, 1 candidate, best 24"), text.index("round 2  merged")
    assert text.index("round 1  merged  18 → 24") < drawn < told
    assert "\x1b[1A\x1b[K" in text[drawn:told], "it makes room for lines that stay"
    assert "# winner" not in text[text.index("sort is idle") :], "nothing of it is left"
