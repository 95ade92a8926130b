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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from holdfast.agents import context, measure, reported
from holdfast.agents.agent import Agent, End, Opened, Start
from holdfast.codec import Record
from holdfast.errors import HoldfastError, Indeterminate, NotFound
from holdfast.layout import scratch
from holdfast.ledger.book import Event
from holdfast.proc.limits import Ended, Limits, Progress
from holdfast.proc.survivors import Mark
from holdfast.proc.tree import Tree
from holdfast.process import this_process
from holdfast.workspace.command import program

if TYPE_CHECKING:
    from holdfast.store.home import Home

Delivery = Literal["file", "env", "stdin"]
REPORT = "report"
"""Not `.json`: a file of the agent's, which may be broken without the home being so."""
_TAIL_IN_JOURNAL, _MOST_SUMMARY = 2_000, 200
_HOLDFAST = (sys.executable, "-m", "holdfast", "--home")


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


class Echo(Protocol):
    """Gets the output of a command as it comes."""

    def __call__(self, stream: str, data: bytes) -> None: ...

    def blocked(self) -> int | None:
        """Pass on what was not yet; the descriptor that has to take more of it first."""
        ...


def run(home: Home, agent: Agent, plan: Plan, echo: Echo) -> Ran:
    """Run a command as a session."""
    place = _working_directory()
    # Made before the session: a command that is not there must not become a session.
    probe = program(plan.command, limits=plan.limits, clock=home.clock)
    start = plan.start._replace(tree=probe.mark.as_dict())
    buried = agent.bury()  # first, so that the context tells how the last session ended
    given = context.gather(home, agent)
    count = measure.Count(home, agent.name, place)
    with _Signals() as signals:
        opened = agent.start(start, owner=(owner := this_process()))
        one = _Run(home, agent, plan, opened)
        one.warnings += [
            f"{name} had crashed{agent.told_of_remains(name)}; that is on record now"
            for name in [*buried, *opened.buried]
        ]
        try:
            agent.desk.hand_out(opened.id, opened.fence, owner)
            text = context.compose(context.with_mail(agent, given, opened.id))
            return one.run(text, probe.mark, echo, count, signals)
        except BaseException as error:
            one.fail(error)
            raise
        finally:
            one.clear()


class _Run:
    """One session under way."""

    def __init__(self, home: Home, agent: Agent, plan: Plan, opened: Opened) -> None:
        self._home, self._agent, self._plan, self._opened = home, agent, plan, opened
        self._folder = os.path.join(home.path, "cache", "sessions", opened.id)
        self._overspent = False
        self._ended: Ended | None = None
        self.warnings: list[str] = []

    def run(
        self, text: str, mark: Mark, echo: Echo, count: measure.Count, signals: _Signals
    ) -> Ran:
        home, agent, plan, opened = self._home, self._agent, self._plan, self._opened
        home.blob(scratch(opened.id, "context.md")).put([home.mask(text).encode()])
        began, sweep = home.clock.now(), ("session", "sweep", "--agent", agent.name)
        stdin = text if plan.delivery == "stdin" else None
        if plan.stdin is not None:
            stdin = plan.stdin.replace("{context}", text)

        def beat(progress: Progress) -> None:
            self._beat(progress)
            if self._costs_too_much(self._said()[0]):
                tree.stop()

        tree = program(
            plan.command,
            limits=plan.limits,
            env=self._environment(text, stdin),
            stdin=stdin,
            on_output=echo,
            blocked=echo.blocked,
            on_beat=beat,
            beat_every=home.settings.heartbeat,
            # What the keeper runs when we are gone: it records the crash.
            orphaned=[*_HOLDFAST, home.path, "--layout", agent.layout.name, *sweep],
            mark=mark,
            clock=home.clock,
        )
        signals.end(tree)
        with tree:
            ended, clean = tree.wait(), home.mask
            # Before they are shortened: half a key is one that no pattern finds.
            ended = replace(ended, last_line=clean(ended.last_line), tail=clean(ended.tail))
            self._ended = ended
            claimed = self._claims(ended)
            end = _end(ended, claimed, count.since(began), overspent=self._overspent)
            unkept = self._keep(ended)
            agent.end(opened.role, opened.fence, end)
        if unkept is not None:
            raise unkept
        return Ran(opened.id, ended, end, self.warnings)

    def clear(self) -> None:
        """Remove what was for the time of the session, whatever the command made of it."""
        import shutil  # noqa: PLC0415 - only here

        # direct write: scratch, in which the command may have put anything
        shutil.rmtree(self._folder, ignore_errors=True)  # noqa: TID251

    def _claims(self, ended: Ended) -> Record:
        said, odd = self._said()
        self.warnings += [odd] if odd else []
        claimed = {**reported.from_output(ended.stdout.text), **said}
        claimed["answer"] = self._home.mask(claimed.get("answer", ""))
        if self._costs_too_much(claimed) and ended.outcome == "exited":
            self.warnings.append(f"it cost {claimed['cost_usd']:.2f} USD, more than it may")
        return claimed

    def _costs_too_much(self, said: Record) -> bool:
        """Whether the command ever reported that it cost more than it may."""
        cost, most = said.get("cost_usd"), self._opened.budget
        if most is not None and isinstance(cost, int | float) and cost > most:
            self._overspent = True
        return self._overspent

    def _environment(self, text: str, stdin: str | None) -> dict[str, str]:
        opened, folder = self._opened, self._folder
        own = {
            "HOLDFAST_HOME": self._home.path,
            "HOLDFAST_AGENT": self._agent.name,
            "HOLDFAST_SESSION": opened.id,
            "HOLDFAST_ROLE": opened.role,
            "HOLDFAST_CONTEXT": os.path.join(folder, "context.md"),
            "HOLDFAST_REPORT": os.path.join(folder, REPORT),
            # A hook of Claude Code need not repeat what the prompt says.
            "HOLDFAST_CONTEXT_GIVEN": "stdin" if text and text in (stdin or "") else "",
        }
        if self._plan.delivery == "env":
            own["HOLDFAST_CONTEXT_TEXT"] = text
        return {**os.environ, **own}

    def _beat(self, progress: Progress) -> None:
        data: dict[str, Any] = {
            "elapsed_sec": round(progress.elapsed),
            "output_bytes": progress.output_bytes,
            "last_line": self._home.mask(progress.last_line)[:200],
            "memory_bytes": progress.sample.memory,
        }
        session = self._opened.id
        event = Event("heartbeat", "Heartbeat", "holdfast", session=session, data=data)
        try:
            self._agent.ledger.write(event)
        except HoldfastError as error:
            self.warnings.append(f"a heartbeat could not be written: {error.message}")

    def _said(self) -> tuple[Record, str]:
        """What the report says so far; the command may have put anything in its place."""
        path = os.path.join(self._folder, REPORT)
        if not os.path.lexists(path):
            return {}, ""
        data, wrong = reported.content(path, reported.LARGEST_REPORT)
        return ({}, f"the report cannot be read: {wrong}") if wrong else reported.from_file(data)

    def _keep(self, ended: Ended) -> HoldfastError | None:
        """Store what was printed; an error comes later, the end of the session goes first."""
        blob = self._home.blob(self._agent.output_key(self._opened.id))
        try:
            blob.put([_kept(ended, self._home.mask).encode("utf-8", "replace")])
        except HoldfastError as error:
            return _while_ending(error, ended, "its output could not be kept")
        return None

    def fail(self, error: BaseException) -> None:
        """End the session whatever broke, with what the command did."""
        said = getattr(error, "message", None) or str(error) or type(error).__name__
        failed = {"kind": "holdfast", "message": f"the wrapper failed: {said}"}
        fields: Record = {}
        if self._ended is not None:
            fields = {"exit_code": self._ended.exit_code, "signal": self._ended.signal}
            fields["duration_seconds"] = round(self._ended.duration, 3)
        end = End("error", "wrapper", failed, {k: v for k, v in fields.items() if v is not None})
        # It may have had its end before the failure, or the disk may be what failed.
        with suppress(HoldfastError):
            self._agent.end(self._opened.role, self._opened.fence, end)
        if self._ended is not None and isinstance(error, HoldfastError):
            raise _while_ending(error, self._ended, "its end could not be recorded") from error


def _while_ending(error: HoldfastError, ended: Ended, what: str) -> HoldfastError:
    """An error after the command, with how that ended, so that it is not run again."""
    if error.message.startswith(_HOW):
        return error
    how = f"signal {ended.signal}" if ended.signal is not None else f"code {ended.exit_code}"
    said = f"{_HOW} {how}, but {what}: {error.message}"
    return Indeterminate(said, hint=_AFTERWARDS, path=error.path)


_HOW = "the command ended with"
_AFTERWARDS = (
    "do not repeat it: it was run; once that is mended, `holdfast session sweep` records its end"
)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise NotFound("the working directory is gone", hint="`cd` to one that is there") from None


class _Signals:
    """For the time of a block the signals that would end us end the command instead.

    One that comes before there is a command ends it before it begins, and one that was ignored,
    as by `nohup`, stays so.
    """

    def __init__(self) -> None:
        self._before = dict[int, Any]()
        self._tree: Tree | None = None
        self._asked = False

    def end(self, tree: Tree) -> None:
        """End this one from now on."""
        self._tree = tree
        if self._asked:
            tree.stop()

    def _stop(self, number: int, frame: object) -> None:
        self._asked = True
        if self._tree is not None:
            self._tree.stop()

    def __enter__(self) -> _Signals:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) == signal.SIG_IGN:
                continue
            try:
                self._before[number] = signal.signal(number, self._stop)
            except ValueError:
                break  # not the main thread, which decides
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# --- how it ended -----------------------------------------------------------------------------


def _end(ended: Ended, claimed: Record, measured: Record, *, overspent: bool) -> End:
    outcome, cause = _outcome(ended, overspent=overspent)
    failed, answer = claimed.pop("failed", None), " ".join(claimed.pop("answer").split())
    if failed and outcome == "completed":
        outcome, cause = "error", "reported"
    message = _message(ended, cause, failed)
    error = None
    if outcome != "completed":
        error = {"kind": cause, "message": message, "output_tail": ended.tail[-_TAIL_IN_JOURNAL:]}
    measured = {
        **measured,
        "cpu_seconds": round(ended.cpu_seconds, 2),
        "peak_memory_bytes": ended.peak_memory,
        "output_bytes": ended.output_bytes,
        "survivors_killed": ended.survivors_killed,
    }
    fields: Record = {
        **claimed,
        "duration_seconds": round(ended.duration, 3),
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "measured": measured,
        "claimed": {name: claimed[name] for name in ("sources_archived",) if name in claimed},
    }
    if measured["sources_archived"] is not None:
        fields["sources_archived"] = measured["sources_archived"]
    if "summary" not in claimed:
        said = (answer or ended.last_line)[:_MOST_SUMMARY]
        fields["summary"] = message if error else said or "completed"
    return End(outcome, cause, error, {name: v for name, v in fields.items() if v is not None})


def _outcome(ended: Ended, *, overspent: bool) -> tuple[str, str | None]:
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
            return "error", "cost" if overspent else "stopped"
        case other:
            return "error", other


def _message(ended: Ended, cause: str | None, failed: str | None) -> str:
    if failed and cause in ("exit", "reported"):
        return failed
    told = {
        "exit": f"exit code {ended.code}",
        "signal": f"ended by signal {ended.signal}",
        "timeout": f"timeout after {ended.duration:.0f} s",
        "cost": "it spent more than it may",
        "stopped": "stopped",
        "lost": ended.told_lost,
        "not_started": f"could not be started: {ended.error}",
    }.get(cause or "", f"ended: {cause}")
    said = failed or ended.last_line[:200]
    return f"{told}: {said}" if said else told


def _kept(ended: Ended, clean: Callable[[str], str]) -> str:
    parts = [ended.stdout.cleaned(clean)]
    if ended.stderr.total:
        parts += ["\n--- standard error ---\n", ended.stderr.cleaned(clean)]
    return "".join(parts)
