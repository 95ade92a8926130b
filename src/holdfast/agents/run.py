"""A command as one session of an agent, from its start to exactly one end.

The wrapper writes the state, not the agent.  It takes the lease, begins the session, gives the
command its context, beats while it runs, keeps the limits, measures what was done and writes
how it ended.  If the wrapper is killed, a keeper ends the command's processes and has the
crash put on record; if both are, the next start does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.agents import context, reported
from holdfast.agents.agent import Agent, End, Opened, Start
from holdfast.codec import Record
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.layout import scratch
from holdfast.ledger.book import Event
from holdfast.proc.limits import Ended, Limits, Progress
from holdfast.proc.tree import Tree
from holdfast.store.vfs import this_process

if TYPE_CHECKING:
    from holdfast.store.home import Home

Delivery = Literal["file", "env", "stdin"]
MOST_FILES_NAMED = 100
MOST_FILES_SEEN = 100_000
_TAIL_IN_JOURNAL = 2_000
_LARGEST_REPORT = 1 << 20


class Plan(NamedTuple):
    """What to run, and within which limits."""

    command: Sequence[str]
    start: Start
    limits: Limits
    delivery: Delivery = "file"
    stdin: str | None = None
    """A text for the command; `{context}` in it stands for the context."""


class Ran(NamedTuple):
    session: str
    ended: Ended
    end: End
    warnings: list[str]


class _Spent:
    """Whether the command has told of more than it may spend."""

    def __init__(self, most: float | None) -> None:
        self.most, self.over = most, False

    def look(self, said: Record) -> bool:
        cost = said.get("cost_usd")
        if self.most is not None and isinstance(cost, int | float) and cost > self.most:
            self.over = True
        return self.over


def run(home: Home, agent: Agent, plan: Plan, echo: Callable[[str, bytes], None]) -> Ran:
    """Run a command as a session; `echo` gets its output as it comes."""
    warnings: list[str] = []
    # Made before the session: a command that is not there must not become a session.
    probe = Tree(plan.command, limits=plan.limits, clock=home.clock)
    start = plan.start._replace(tree=probe.mark.as_dict())
    agent.bury()  # so that the context tells how the last session ended
    given = context.gather(home, agent)
    opened = agent.start(start, owner=this_process())
    warnings += [f"{name} had crashed; that is on record now" for name in opened.buried]
    try:
        text = context.compose(context.with_mail(agent, given))
        return _run(home, agent, plan, opened, text, probe.mark.id, echo, warnings)
    except Exception as error:
        # Whatever breaks here, the session has an end.
        failed = {"kind": "holdfast", "message": f"the wrapper failed: {error}"}
        with suppress(LeaseLost):  # it may have had its end before the failure
            agent.end(opened.role, opened.fence, End("error", "wrapper", failed))
        raise


def _run(
    home: Home,
    agent: Agent,
    plan: Plan,
    opened: Opened,
    text: str,
    mark: str,
    echo: Callable[[str, bytes], None],
    warnings: list[str],
) -> Ran:
    folder = os.path.join(home.path, "cache", "sessions", opened.id)
    home.document(scratch(opened.id, "context.md")).replace(text.encode())
    report = os.path.join(folder, "report.json")
    environment = _environment(home, agent, opened, plan, text, folder)
    began, spent = home.clock.now(), _Spent(opened.budget)

    def beat(progress: Progress) -> None:
        _beat(agent, opened, progress, warnings)
        if spent.look(reported.from_file(_read(report))[0]):
            tree.stop()

    tree = Tree(
        plan.command,
        limits=plan.limits,
        env=environment,
        stdin=_input(plan, text),
        on_output=echo,
        on_beat=beat,
        beat_every=home.settings.heartbeat,
        orphaned=_undertaker(home, agent),
        id=mark,
        clock=home.clock,
    )
    with _forwarding(tree), tree:
        ended = tree.wait()
        said, odd = reported.from_file(_read(report))
        warnings += [odd] if odd else []
        claimed = {**reported.from_output(ended.stdout.text), **said}
        if spent.look(claimed) and ended.outcome == "exited":
            warnings.append(f"it cost {claimed['cost_usd']:.2f} USD, more than it may")
        touched = files_touched(os.getcwd(), began)
        home.document(agent.output_key(opened.id)).replace(_kept(ended).encode("utf-8", "replace"))
        end = _end(ended, claimed, touched, spent)
        agent.end(opened.role, opened.fence, end)
    return Ran(opened.id, ended, end, warnings)


# --- before ---------------------------------------------------------------------------------


def _environment(
    home: Home, agent: Agent, opened: Opened, plan: Plan, text: str, folder: str
) -> dict[str, str]:
    own = {
        "HOLDFAST_HOME": home.path,
        "HOLDFAST_AGENT": agent.name,
        "HOLDFAST_SESSION": opened.id,
        "HOLDFAST_ROLE": opened.role,
        "HOLDFAST_CONTEXT": os.path.join(folder, "context.md"),
        "HOLDFAST_REPORT": os.path.join(folder, "report.json"),
    }
    if plan.delivery == "env":
        own["HOLDFAST_CONTEXT_TEXT"] = text
    return {**os.environ, **own}


def _input(plan: Plan, text: str) -> str | None:
    if plan.stdin is not None:
        return plan.stdin.replace("{context}", text)
    return text if plan.delivery == "stdin" else None


def _undertaker(home: Home, agent: Agent) -> list[str]:
    """What the keeper runs when we are gone: it puts the crash on record."""
    words = ["--home", home.path, "--layout", agent.layout.name]
    words += ["session", "sweep", "--agent", agent.name]
    return [sys.executable, "-m", "holdfast", *words]


# --- meanwhile ------------------------------------------------------------------------------


def _beat(agent: Agent, opened: Opened, progress: Progress, warnings: list[str]) -> None:
    data: dict[str, Any] = {
        "elapsed_sec": round(progress.elapsed),
        "output_bytes": progress.output_bytes,
        "last_line": progress.last_line[:200],
        "memory_bytes": progress.sample.memory,
    }
    event = Event("heartbeat", "Heartbeat", "holdfast", session=opened.id, data=data)
    try:
        agent.ledger.write(event)
    except HoldfastError as error:
        warnings.append(f"a heartbeat could not be written: {error.message}")


class _forwarding:
    """For the time of a block the signals that would end us end the command instead."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._before = tree, dict[int, Any]()

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            try:
                self._before[number] = signal.signal(number, self._stop)
            except ValueError:
                return  # not the main thread: whoever has it decides

    def _stop(self, number: int, frame: object) -> None:
        self._tree.stop()

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# --- afterwards -----------------------------------------------------------------------------


def _end(ended: Ended, claimed: Record, touched: Record, spent: _Spent) -> End:
    outcome, cause = _outcome(ended, spent)
    failed = claimed.pop("failed", None)
    if failed and outcome == "completed":
        outcome, cause = "error", "reported"
    message = _message(ended, cause, failed)
    error = None
    if outcome != "completed":
        error = {"kind": cause, "message": message, "output_tail": ended.tail[-_TAIL_IN_JOURNAL:]}
    measured: Record = {
        **touched,
        "cpu_seconds": round(ended.cpu_seconds, 2),
        "peak_memory_bytes": ended.peak_memory,
        "output_bytes": ended.output_bytes,
        "survivors_killed": ended.survivors_killed,
    }
    fields: Record = {
        **claimed,
        "duration_seconds": round(ended.duration, 3),
        "exit_code": ended.code,
        "signal": ended.signal,
        "measured": measured,
        "claimed": {name: claimed[name] for name in ("sources_archived",) if name in claimed},
    }
    if "summary" not in claimed:
        fields["summary"] = message if error else ended.last_line[:200] or "completed"
    return End(outcome, cause, error, {name: v for name, v in fields.items() if v is not None})


def _outcome(ended: Ended, spent: _Spent) -> tuple[str, str | None]:
    match ended.outcome:
        case "exited" if ended.code == 0:
            return "completed", None
        case "exited":
            return "error", "exit"
        case "signaled":
            return "error", "signal"
        case "timeout":
            return "timeout", "timeout"
        case "stopped":
            return "error", "cost" if spent.over else "stopped"
        case other:
            return "error", other


def _message(ended: Ended, cause: str | None, failed: str | None) -> str:
    if failed:
        return failed
    told = {
        "exit": f"exit code {ended.code}",
        "signal": f"ended by signal {ended.signal}",
        "timeout": f"timeout after {ended.duration:.0f} s",
        "cost": "it spent more than it may",
        "stopped": "stopped",
        "not_started": f"could not be started: {ended.error}",
    }.get(cause or "", f"ended: {cause}")
    return f"{told}: {ended.last_line[:200]}" if ended.last_line else told


def _kept(ended: Ended) -> str:
    parts = [ended.stdout.text]
    if ended.stderr.total:
        parts += ["\n--- standard error ---\n", ended.stderr.text]
    return "".join(parts)


def files_touched(folder: str, since: float) -> Record:
    """Files below a folder that were written since then: how many, and the first names."""
    names: list[str] = []
    count = 0
    for seen, (path, changed) in enumerate(_files(folder)):
        if seen >= MOST_FILES_SEEN:
            return {"files_touched": names, "files_touched_count": None}
        if changed >= since:
            count += 1
            if len(names) < MOST_FILES_NAMED:
                names.append(os.path.relpath(path, folder))
    return {"files_touched": sorted(names), "files_touched_count": count}


def _files(folder: str) -> Iterator[tuple[str, float]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".git", ".holdfast")]
        for name in files:
            path = os.path.join(place, name)
            try:
                yield path, os.lstat(path).st_mtime
            except OSError:
                continue  # it went while we looked


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST_REPORT)
    except OSError:
        return b""
