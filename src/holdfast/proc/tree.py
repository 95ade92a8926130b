"""Runs one command as a tree of processes, within limits, and leaves nothing of it behind.

    with Tree(["claude", "-p", "…"], limits=Limits(time=5400)) as tree:
        ended = tree.wait()
        …  # record how it ended: should we die before that is done, the keeper runs `orphaned`

`Tree(…).run()` is the same without a record.  Both pipes are always drained, by one loop in
the calling thread; callbacks run in it too, so they should return soon.  `docs/processes.md`
says which means guarantees what.  Knows nothing of sessions, files or money.
"""

from __future__ import annotations

import errno
import os
import secrets
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import Literal, NamedTuple, Self

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Busy, ConfigError, UsageError, typed
from holdfast.proc import around, cgroup, procfs, survivors
from holdfast.proc.command import program_of
from holdfast.proc.gauge import Gauge
from holdfast.proc.limits import Ended, Limits, Means, Outcome, Progress, Sample
from holdfast.proc.link import Link
from holdfast.proc.output import Keep, Output, Stream
from holdfast.proc.survivors import Mark

NO_LIMITS, KEEP = Limits(), Keep()
_CHUNK = 64 << 10
_LOOK_OFTEN, _LOOK_SELDOM = 0.1, 1.0
_LOOK_SHARE = 20
"""A look may take one part in so many of the time."""
_SHORT_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
"""Seconds; a clock that jumps, or was turned by a test, is noticed after this."""
_STUCK_AFTER = 10.0
"""Seconds until a process that does not die of SIGKILL is given up."""
_PATIENCE = 20.0
"""Seconds after the grace for the keeper to end a tree, or to say that it cannot."""
_DRAIN = 0.5
"""Seconds for what is still in the pipes when all who could write to them have gone."""


class Child(NamedTuple):
    """The command, told from every other process that ever has its number."""

    pid: int
    start: int
    boot: str


class Tree:
    def __init__(
        self,
        command: Sequence[str],
        *,
        limits: Limits = NO_LIMITS,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | bytes | int | None = None,
        on_start: Callable[[Child], None] | None = None,
        on_output: Callable[[Stream, bytes], None] | None = None,
        blocked: Callable[[], int | None] | None = None,
        on_beat: Callable[[Progress], None] | None = None,
        beat_every: float = 60.0,
        keep: Keep = KEEP,
        orphaned: Sequence[str] | None = None,
        means: Sequence[Means] | None = None,
        mark: Mark | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Check that the command can be run; nothing is started yet.

        `env` replaces our own environment. A descriptor as `stdin` stays the caller's.
        `on_start` is called when the command exists and before it begins. `orphaned` is what
        the keeper runs when the tree has gone and we have too. `means` are tried in turn.
        `mark` is that of a tree that was only checked.

        `blocked` tells which descriptor has to take what `on_output` got before more of it can
        be read, if any. So a slow reader slows the command down, and limits hold all the same.
        """
        self._clock = clock or SystemClock()
        self._environment = dict(os.environ if env is None else env)
        self._program = program_of(command, self._environment, cwd)
        self._command, self._cwd, self._limits = list(command), cwd, limits
        self._means = tuple(means or best_means())
        self._orphaned = list(orphaned) if orphaned else None
        self._on_start, self._on_output, self._on_beat = on_start, on_output, on_beat
        self._blocked = blocked
        self._beat_every = beat_every
        self._around = around.current()
        self.mark = mark or self._marked()
        """Write this down before the start, to find the tree again."""
        self.child: Child | None = None
        trees = [self._environment.get(procfs.TREE), self._around and self._around.id, self.mark.id]
        self._environment[procfs.TREE] = ":".join(each for each in trees if each)

        self._input = stdin.encode() if isinstance(stdin, str) else stdin
        """What is left of it to write, or where the command reads it."""
        self._output = Output(keep, limits.output)
        self._selector = selectors.PollSelector()  # takes no descriptor before the start
        self._pipes: set[int] = set()
        """Our ends of the pipes to and from the command, as long as they are open."""
        self._sources: dict[int, Callable[[], None]] = {}
        """Those of them that we read."""
        self._outlet: int | None = None
        """What we wait for instead of reading."""
        self._link: Link | None = None
        self._waker = RLock()
        self._wake: tuple[int, int] | None = None
        self._asked: Literal["", "t", "k"] = ""

        self._began = self._ended = 0.0
        self._next_look = self._next_beat = 0.0
        self._drained_by = 0.0
        self._keeper_due: float | None = None
        self._told_now = False
        self._used_means: Means = "group"
        self._gauge: Gauge | None = None
        self._sample = Sample()
        self._cpu, self._peak = 0.0, 0
        self._reason: Outcome | None = None
        self._refused: tuple[str, int] | None = None
        self._status: int | None = None
        self._gone = False
        self._stuck = False
        self._killed = self._left = 0
        self._result: Ended | None = None

    def _marked(self) -> Mark:
        place = cgroup.place() if "cgroup" in self._means else None
        id = self._around.name_one() if self._around else secrets.token_hex(8)
        group = f"{place}/{survivors.group_name(id)}" if place else None
        return Mark(id, self._clock.boot(), group)

    @property
    def keeper(self) -> int | None:
        """The process that ends the tree if we cannot; None when there is none."""
        return None if self._link is None else self._link.pid

    def run(self) -> Ended:
        """From start to end."""
        with self:
            return self.wait()

    # --- starting ---------------------------------------------------------------------------

    def start(self) -> Child:
        """Start the command and return it; a typed error if no means works here."""
        if self._wake is not None or self._result is not None:
            raise UsageError("this tree was started before", hint="make a new one")
        try:
            with typed("starting a command"):
                link = self._spawn()
            child = self._hear_of_start(link)
            if self._on_start is not None:
                self._on_start(child)
        except BaseException:
            self._abort()
            raise
        self._began = self._clock.boottime()
        self._next_beat = self._began + self._beat_every
        self._next_look = self._began + _LOOK_OFTEN
        if self._asked:
            self._end("stopped", now=True)  # at the gate: it never begins
        else:
            link.tell("g")
        return child

    def _spawn(self) -> Link:
        wake, _ = self._wake = os.pipe()
        for fd in self._wake:
            os.set_blocking(fd, False)
        self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 64))
        theirs: list[int] = []
        try:
            theirs += [self._pipe_from("out"), self._pipe_from("err")]
            source = self._input if isinstance(self._input, int) else subprocess.DEVNULL
            if isinstance(self._input, bytes) and self._input:
                source, ours = os.pipe()
                theirs.append(source)
                os.set_blocking(ours, False)
                self._pipes.add(ours)
                self._selector.register(ours, selectors.EVENT_WRITE, lambda: self._write(ours))
            link = self._link = Link(self.mark.id, source, *theirs[:2])
        finally:
            for fd in theirs:
                os.close(fd)
        link.watch(self._selector, self._note)
        link.order(self._order())
        return link

    def _pipe_from(self, stream: Stream) -> int:
        ours, theirs = os.pipe()
        self._pipes.add(ours)
        self._sources[ours] = lambda: self._read(ours, stream)
        self._selector.register(ours, selectors.EVENT_READ, self._sources[ours])
        return theirs

    def _order(self) -> dict[str, object]:
        group, limits = self.mark.cgroup, self._limits
        made = group is not None and cgroup.make(
            group, memory=limits.memory, tasks=limits.processes
        )
        return {
            "wrapper": os.getpid(),
            "program": os.fsencode(self._program),
            "command": [os.fsencode(word) for word in self._command],
            "environment": {
                os.fsencode(name): os.fsencode(value) for name, value in self._environment.items()
            },
            "cwd": None if self._cwd is None else os.fsencode(self._cwd),
            "means": [means for means in self._means if made or means != "cgroup"],
            "cgroup": group,
            "users": os.geteuid() != 0,
            "grace": float(limits.grace),
            "stuck_after": _STUCK_AFTER,
            "orphaned": self._orphaned and [os.fsencode(word) for word in self._orphaned],
        }

    def _hear_of_start(self, link: Link) -> Child:
        while self.child is None and not (self._gone or link.lost):
            self._turn(_LONGEST_PAUSE)
        if self.child is not None:
            return self.child
        if self._refused is None:
            raise Busy("the keeper of the command was killed", hint="try again")
        stage, number = self._refused
        if stage == "fork":
            raise Busy(
                f"no new process: {os.strerror(number)}", hint="too many run here; try again later"
            )
        raise ConfigError(
            f"cannot hold a tree by {' or '.join(self._means)}: "
            + (os.strerror(number) if number else "not to be had here"),
            hint="leave the choice of means to us: a process group works everywhere",
        )

    # --- running ----------------------------------------------------------------------------

    def wait(self) -> Ended:
        """Until nothing is left of the tree; calling it again gives the same answer."""
        if self._result is not None:
            return self._result
        if self.child is None or self._link is None:
            raise UsageError("this tree does not run", hint="`start` it, or use it in a `with`")
        try:
            while not self._finished():
                self._turn(self._pause())
                self._check(self._link)
        except BaseException:
            self._abort()
            raise
        self._result = self._tell_all()
        return self._result

    def stop(self, *, now: bool = False) -> None:
        """Ask for the end of the tree, from any thread or from a signal handler.

        Returns at once; `now` leaves out SIGTERM and its grace.
        """
        self._asked = "k" if now or self._asked == "k" else "t"
        with self._waker, suppress(BlockingIOError):
            if self._wake is not None:
                os.write(self._wake[1], b".")

    def _turn(self, pause: float) -> None:
        if self._blocked is not None:
            # What is left in the pipes at the end is little, and has to be read in any case.
            self._wait_for(None if self._gone else self._blocked())
        for key, _ in self._selector.select(pause):
            key.data()

    def _wait_for(self, outlet: int | None) -> None:
        """Read on, or wait until the outlet can take more."""
        if outlet == self._outlet:
            return
        for fd in self._sources if self._outlet is None else [self._outlet]:
            self._selector.unregister(fd)
        self._outlet = outlet
        if outlet is None:
            for fd, read in self._sources.items():
                self._selector.register(fd, selectors.EVENT_READ, read)
        else:
            self._selector.register(outlet, selectors.EVENT_WRITE, lambda: None)

    def _pause(self) -> float:
        if self._gone:
            return _SHORT_PAUSE
        moments = [self._next_look]
        if self._limits.time is not None and self._reason is None:
            moments.append(self._began + self._limits.time)
        if self._on_beat is not None:
            moments.append(self._next_beat)
        return min(max(0.0, min(moments) - self._clock.boottime()), _LONGEST_PAUSE)

    def _finished(self) -> bool:
        """When all have gone, and the pipes are empty or held open by a stranger."""
        if self._stuck:
            return True
        return self._gone and (not self._pipes or SystemClock().boottime() >= self._drained_by)

    def _check(self, link: Link) -> None:
        """Everything that has to happen from time to time."""
        if self._gone:
            return
        if link.lost:
            self._end_without_keeper()
            return
        if self._keeper_due is not None and SystemClock().boottime() > self._keeper_due:
            link.kill()
        now = self._clock.boottime()
        if self._asked:
            self._end("stopped", now=self._asked == "k")
        if self._limits.time is not None and now - self._began >= self._limits.time:
            self._end("timeout")
        if self._output.over:
            self._end("output")
        if now >= self._next_look:
            link.wake()
            self._look()
        if self._on_beat is not None and now >= self._next_beat:
            self._next_beat = now + self._beat_every
            output = self._output
            self._on_beat(Progress(now - self._began, output.total, output.last_line, self._sample))

    def _look(self) -> None:
        """See what the tree uses, and end it if that is too much."""
        if self._gauge is None or self._status is not None or self._reason is not None:
            self._next_look = self._clock.boottime() + _LOOK_SELDOM
            return
        limits, before = self._limits, SystemClock().boottime()
        self._sample = self._gauge.read()
        if limits.memory is not None and not self._gauge.kernel_limits_memory:
            if self._sample.memory > limits.memory:
                once = self._gauge.memory_counted_once()
                self._sample = self._sample._replace(memory=once)
            if self._sample.memory > limits.memory:
                self._end("memory")
        self._cpu, self._peak = self._sample.cpu, max(self._peak, self._sample.memory)
        if limits.cpu is not None and self._sample.cpu > limits.cpu:
            self._end("cpu")
        if limits.processes is not None and (
            self._sample.processes > limits.processes or self._kernel_refused_processes()
        ):
            self._end("processes")
        often = (limits.memory, limits.cpu, limits.processes) != (None, None, None)
        cost = SystemClock().boottime() - before
        pause = max(_LOOK_OFTEN if often else _LOOK_SELDOM, cost * _LOOK_SHARE)
        self._next_look = self._clock.boottime() + pause

    def _end(self, reason: Outcome, *, now: bool = False) -> None:
        """Have the keeper end the tree; the first reason is the one that is told."""
        assert self._link is not None
        if self._status is None and self._reason is None:
            self._reason = reason
            self._expect_end(self._limits.grace)
            self._link.tell("k" if now else "t")
        elif now and not self._told_now:
            self._link.tell("k")
        self._told_now = self._told_now or now

    def _expect_end(self, grace: float) -> None:
        """From now on the keeper has to come to an end, or the tree is ended without it."""
        if self._keeper_due is None:
            self._keeper_due = SystemClock().boottime() + grace + _PATIENCE

    # --- pipes ------------------------------------------------------------------------------

    def _close_pipe(self, fd: int) -> None:
        self._selector.unregister(fd)
        self._pipes.remove(fd)
        self._sources.pop(fd, None)
        os.close(fd)

    def _read(self, fd: int, stream: Stream) -> None:
        data = os.read(fd, _CHUNK)
        if not data:
            self._close_pipe(fd)
        elif (data := self._output.add(stream, data)) and self._on_output is not None:
            self._on_output(stream, data)

    def _write(self, fd: int) -> None:
        assert isinstance(self._input, bytes)
        try:
            self._input = self._input[os.write(fd, self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._input = b""  # nobody reads it
        if not self._input:
            self._close_pipe(fd)

    # --- the keeper -------------------------------------------------------------------------

    def _note(self, words: list[str]) -> None:
        match words:
            case ["ready", ("cgroup" | "pidns" | "group") as means, pid, start]:
                self._used_means = means
                self.child = Child(int(pid), int(start), self.mark.boot)
                if means != "cgroup" and self.mark.cgroup is not None:
                    cgroup.remove(self.mark.cgroup)
                if (found := procfs.stat(self.child.pid)) is not None:
                    self._gauge = Gauge(found.parent, self._group)
            case ["refused", stage, number]:
                self._refused = stage, int(number)
            case ["exited", status]:
                self._status = int(status)
                self._ended = self._clock.boottime()
                self._expect_end(self._limits.grace)
            case ["stuck", count]:
                self._stuck, self._left = True, int(count)
            case ["gone", killed, cpu, largest]:
                self._killed = int(killed)
                self._cpu = max(self._cpu, float(cpu))
                self._peak = max(self._peak, int(largest))
                self._note_gone()
            case _:
                pass

    def _note_gone(self) -> None:
        self._gone = True
        self._drained_by = SystemClock().boottime() + _DRAIN

    @property
    def _group(self) -> str | None:
        """The control group, if the tree is held by one."""
        return self.mark.cgroup if self._used_means == "cgroup" else None

    def _end_without_keeper(self) -> None:
        """The keeper was killed: the kernel has ended the command with it, we end the rest."""
        known = self._gauge.seen if self._gauge is not None else []
        if self.child is not None:
            known = [*known, (self.child.pid, self.child.start)]
        mark = replace(self.mark, boot=SystemClock().boot())  # ours may come from a test's clock
        try:
            self._killed += survivors.end(mark, known=known)
        except Busy:
            self._stuck, self._left = True, len(survivors.find_survivors(mark, known=known))
        self._note_gone()

    # --- the end ----------------------------------------------------------------------------

    def _tell_all(self) -> Ended:
        final = self._gauge.final() if self._gauge is not None else Sample()
        outcome, code, number = self._outcome()
        if outcome == "lost" and self._around is not None:
            self._around.lost_keeper, self._around.left = True, self._left
        refused = self._refusal() if outcome == "not_started" else None
        return Ended(
            outcome=outcome,
            code=code,
            signal=number,
            duration=(self._ended or self._clock.boottime()) - self._began,
            cpu_seconds=max(self._cpu, final.cpu),
            peak_memory=final.memory or self._peak,
            output_bytes=self._output.total,
            last_line=self._output.last_line,
            tail=self._output.tail,
            stdout=self._output.captured("out"),
            stderr=self._output.captured("err"),
            survivors_killed=self._killed,
            left=self._left,
            means=self._used_means,
            error=refused,
        )

    def _outcome(self) -> tuple[Outcome, int | None, int | None]:
        if self._refused is not None:
            return "not_started", None, None
        if self._status is None:
            return self._reason or "lost", None, None
        code = os.waitstatus_to_exitcode(self._status)
        number = -code if code < 0 else None
        exit_code = code if code >= 0 else None
        if self._reason is not None:
            return self._reason, exit_code, number
        if number == signal.SIGKILL and self._group and cgroup.memory_kills(self._group):
            return "memory", None, number
        if code != 0 and self._kernel_refused_processes():
            return "processes", exit_code, number
        return ("exited" if number is None else "signaled"), exit_code, number

    def _kernel_refused_processes(self) -> bool:
        return self._group is not None and cgroup.tasks_refused(self._group) > 0

    def _refusal(self) -> str:
        assert self._refused is not None
        stage, number = self._refused
        if stage == "cwd":
            return f"cannot enter {self._cwd}: {os.strerror(number)}"
        says = f"cannot run {self._program}: {os.strerror(number)}"
        if number == errno.ENOEXEC:
            return f"{says}; a script has to begin with #! and its interpreter"
        if number == errno.ENOENT:
            return f"{says}; the interpreter that it names in its first line is missing"
        return says

    def close(self) -> None:
        """All is recorded: let the keeper go. Ends the tree first if it still runs."""
        if self._result is None:
            self._abort()
        else:
            self._let_go()

    def _abort(self) -> None:
        """End the tree now, whatever state we are in, and let go of everything."""
        self._on_output = self._on_beat = None
        self._blocked = None
        self._wait_for(None)
        try:
            if self._link is not None:
                self._link.tell("k")
                self._expect_end(0)
                while not self._finished():
                    self._turn(_SHORT_PAUSE)
                    self._check(self._link)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self._waker:
            wake, self._wake = self._wake, None
        for fd in [*self._pipes, *(wake or ())]:
            os.close(fd)
        self._pipes.clear()
        self._selector.close()
        link, self._link = self._link, None
        if link is not None:
            link.tell("d")
            link.close(wait=not self._stuck)
        if self.mark.cgroup is not None:
            cgroup.remove(self.mark.cgroup)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def best_means() -> tuple[Means, ...]:
    """What is tried, best first.

    Without root a pid namespace takes a user namespace, in which ssh, sudo and the like refuse
    to work, so that one has to be asked for.
    """
    return ("cgroup", "pidns", "group") if os.geteuid() == 0 else ("cgroup", "group")
