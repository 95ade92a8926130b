"""`holdfast status` of a fleet, in this process and as a command, against a bare interpreter."""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

from bench.cli import environment
from bench.frame import Bar, Outcome, Setup, percentile, rounded, seconds_of, significant
from bench.material import home_in
from holdfast.agents.agent import Agent, End, Start
from holdfast.agents.lifecycle import bootstrap
from holdfast.ledger.book import Event
from holdfast.ops.context import Context
from holdfast.ops.status import status

AGENTS, QUICK_AGENTS = 200, 20
SESSIONS = 3
RUNNING = 10
"""Every so manieth agent is at work."""
RUNS, QUICK_RUNS = 15, 5
GROUP = 3
MOST_INSIDE, MOST_AS_COMMAND = 0.12, 0.35


def run(setup: Setup) -> Outcome:
    count, place = int(setup.pick(AGENTS, QUICK_AGENTS)), setup.scratch / "home"
    fill(place, count)
    program = "import sys; from holdfast.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "status"]
    inside: list[float] = []
    outside: list[float] = []
    raw: list[float] = []
    for _ in range(QUICK_RUNS if setup.quick else RUNS):
        raw.append(seconds_of(lambda: call([sys.executable, "-c", "pass"], place)))
        inside.append(seconds_of(lambda: look(place, count)))
        outside.append(seconds_of(lambda: call(command, place)))
    groups = [statistics.median(raw[at : at + GROUP]) for at in range(0, len(raw), GROUP)]
    outcome = Outcome()
    outcome.numbers = {
        "agents": count,
        "inside_median_ms": significant(statistics.median(inside) * 1e3),
        "inside_p90_ms": significant(percentile(inside, 0.9) * 1e3),
        "command_median_ms": significant(statistics.median(outside) * 1e3),
        "command_p90_ms": significant(percentile(outside, 0.9) * 1e3),
        "raw_median_ms": significant(statistics.median(raw) * 1e3),
        "inside_ms": rounded([each * 1e3 for each in inside]),
        "command_ms": rounded([each * 1e3 for each in outside]),
        "raw_ms": rounded([each * 1e3 for each in raw]),
    }
    for what, took, most in (
        (f"`status` of {count} agents in process", inside, MOST_INSIDE),
        (f"`status` of {count} agents as a command", outside, MOST_AS_COMMAND),
    ):
        value = statistics.median(took) * 1e3
        beside = tuple(groups)
        bar = Bar(what, value, "<=", most * 1e3, "ms", timed=True, alone=True, beside=beside)
        outcome.bars.append(bar)
    return outcome


def fill(place: Path, count: int) -> None:
    """A fleet with a past; some are at work."""
    with home_in(place) as home:
        for number in range(count):
            name = f"agent-{number:03d}"
            with Agent(home, name) as one:
                bootstrap(home, one, name)
                for _ in range(SESSIONS):
                    begun = one.start(Start("research"))
                    one.ledger.write(Event("heartbeat", "Heartbeat", "holdfast"))
                    fields = {"cost_usd": 0.25, "sources_archived": 3}
                    one.end("", begun.fence, End("completed", fields=fields))
                if number % RUNNING == 0:
                    one.start(Start("extract"))
            inbox = home.mailbox(f"state/{name}/inbox")
            inbox.deliver({"from": "leo", "to": name, "subject": "Look", "body": "Here"})
            inbox.close()


def look(place: Path, count: int) -> None:
    with Context(str(place)) as context, redirect_stdout(io.StringIO()):
        found = status(context)
    assert len(found.rows) == count, "somebody is missing"


def call(command: list[str], place: Path) -> None:
    ran = subprocess.run(command, env=environment(place), capture_output=True, check=False)
    if ran.returncode:
        raise AssertionError(f"{command[1:]} exits {ran.returncode}: {ran.stderr[-500:]!r}")
