"""The parent of one tree: starts the command, reaps, and ends what is left of it.

A process of its own between the wrapper (whoever called `Tree`) and the command, so that a
SIGKILL of the wrapper leaves somebody to end the tree.  It adopts every orphan of the tree;
hence the tree has gone exactly when the keeper has no child left.

The wrapper writes one marshalled dictionary and then single letters, the keeper answers in
lines of words:

    wrapper  g: let the command begin   t: end the tree   k: end it now   d: all is recorded
    keeper   ready MEANS PID START      the command waits for `g`
             refused STAGE ERRNO        it could not be started, by any of the means
             exited STATUS              the command itself has ended
             stuck COUNT                some do not even die of SIGKILL
             gone KILLED CPU MAXRSS     nothing is left

If the wrapper goes before it said `d`, the keeper ends the tree and then becomes the command
that was given for this case.  Knows neither limits nor output.  It starts with every command,
so it imports next to nothing; and it reads no clock, its deadlines are timers of the kernel.
"""

from __future__ import annotations

import marshal
import os
import select
import sys

from holdfast.proc import cgroup, libc, procfs
from holdfast.proc.launch import (
    FAILED,
    IGNORED,
    CannotStart,
    Launch,
    forget_standard_streams,
    read_line,
    restore_signals,
)
from holdfast.proc.procfs import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from holdfast.proc.launch import Order

SETTLE = 0.2
"""Seconds for the rest to end by itself when the command has: a `tee` still has to write."""
LEFTOVER_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for what does not."""
_FOR_EVER, _SHORTEST_PAUSE, _LONGEST_PAUSE, _STUCK_PAUSE = -1, 2, 100, 5000


def _woken(*_: object) -> None:
    """Having a handler is what makes the signal appear in the pipe."""


class Wakes:
    """Signals as bytes in a pipe, so that one poll waits for everything."""

    def __init__(self) -> None:
        self.fd, self._in = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._in, False)
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, _woken)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def alarm(self, seconds: float) -> None:
        # A timer of zero would never ring.
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))

    def rang(self) -> bool:
        """Forget what came in; whether the timer was in it."""
        try:
            return signal.SIGALRM in os.read(self.fd, 65536)
        except BlockingIOError:
            return False


class Keeper:
    def __init__(self, control: int, order: Order) -> None:
        self.control, self.order = control, order
        self.wakes = Wakes()
        self.poll = select.poll()
        self.launch: Launch | None = None
        self.means = ""
        self.ending = ""
        self.orphaned = self.recorded = self.main_ended = False
        self.cpu, self.largest = 0.0, 0
        self.killed: set[procfs.Process] = set()
        self.pause, self.longest_pause = _FOR_EVER, _LONGEST_PAUSE
        self.watch(control)
        self.watch(self.wakes.fd)
        try:
            # A fork of the wrapper may hold its end of the control open; its death shows here.
            self.wrapper = os.pidfd_open(order["wrapper"])
            self.watch(self.wrapper)
        except OSError:
            self.wrapper = -1

    # --- talking ----------------------------------------------------------------------------

    def watch(self, fd: int) -> None:
        self.poll.register(fd, select.POLLIN)

    def say(self, *words: object) -> None:
        try:
            os.write(self.control, " ".join(map(str, words)).encode() + b"\n")
        except OSError:
            pass  # that it has gone is noticed where we listen

    def hear(self) -> None:
        try:
            letters = os.read(self.control, 64)
        except OSError:
            letters = b""
        if not letters:
            self.poll.unregister(self.control)
            self.lose_wrapper()
        for letter in letters.decode():
            if letter == "g" and self.launch is not None:
                self.launch.begin()
            elif letter == "t":
                self.end(self.order["grace"])
            elif letter == "k":
                self.end(0)
            elif letter == "d":
                self.recorded = True

    def lose_wrapper(self) -> None:
        self.orphaned = not self.recorded
        self.end(self.order["grace"])

    # --- starting ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the command by the first means that works, held back before it begins."""
        if os.getppid() != self.order["wrapper"]:
            self.lose_wrapper()
            return
        failure = CannotStart("means", 0)
        for means in self.order["means"]:
            try:
                launch = Launch(self.order, self.control)
                launch.by(means)
            except CannotStart as error:
                failure = error
                continue
            self.launch, self.means = launch, means
            self.watch(launch.refusal)
            self.watch(launch.news)
            forget_standard_streams()
            self.say("ready", means, *launch.process)
            return
        forget_standard_streams()
        self.say("refused", failure.stage, failure.number)

    # --- keeping ----------------------------------------------------------------------------

    def keep(self) -> None:
        """Until nothing of the tree is left."""
        while not self.reap():
            if self.main_ended and not self.ending:
                self.ending = "settle"
                self.wakes.alarm(SETTLE)
            if self.ending == "kill":
                self.kill()
            for fd, _ in self.poll.poll(self.pause):
                self.handle(fd)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.launch is not None:
            self.hear_last_words(self.launch)

    def handle(self, fd: int) -> None:
        if fd == self.control:
            self.hear()
        elif fd == self.wakes.fd:
            if self.wakes.rang():
                self.time_is_up()
        elif fd == self.wrapper:
            self.poll.unregister(fd)
            self.lose_wrapper()
        elif self.launch is not None:
            self.handle_launch(fd, self.launch)

    def handle_launch(self, fd: int, launch: Launch) -> None:
        word, number = read_line(fd)
        if not word:
            self.poll.unregister(fd)
        elif fd == launch.refusal:
            self.say("refused", word.decode(), number.decode())
        elif word == b"exited":
            self.note_exit(int(number))

    def hear_last_words(self, launch: Launch) -> None:
        """What came in between the last poll and the end of all."""
        word, number = read_line(launch.refusal)
        if word:
            self.say("refused", word.decode(), number.decode())
        while not self.main_ended:
            word, number = read_line(launch.news)
            if word == b"exited" or not word:
                # Killed with the first process of its namespace, it had nobody to tell of it.
                self.note_exit(int(number or signal.SIGKILL))

    def reap(self) -> bool:
        """Take in what has ended; True when no child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.cpu += usage.ru_utime + usage.ru_stime
            self.largest = max(self.largest, usage.ru_maxrss * 1024)
            if self.launch is not None and pid == self.launch.main:
                self.note_exit(status)

    def note_exit(self, status: int) -> None:
        self.main_ended = True
        self.say("exited", status)

    # --- ending -----------------------------------------------------------------------------

    def members(self) -> list[procfs.Stat]:
        world = procfs.everything()
        found = {one.pid: one for one in procfs.below([os.getpid()], world)}
        if self.means == "cgroup" and self.order["cgroup"]:
            for pid in cgroup.members(self.order["cgroup"]):
                if pid in world:
                    found[pid] = world[pid]
        if self.launch is not None and self.launch.init is not None:
            found.pop(self.launch.init[0], None)
        return [one for one in found.values() if one.alive]

    def end(self, grace: float) -> None:
        """Ask all to end, and kill what is left after `grace` seconds; can only get stricter."""
        if self.ending == "kill":
            return
        # What has not begun has nothing to put in order.
        if grace <= 0 or (self.launch is not None and self.launch.held):
            self.start_killing()
            return
        if self.ending == "term":
            return
        self.ending = "term"
        for one in self.members():
            procfs.send(one.process, signal.SIGTERM)
            # One that is stopped could not obey.
            procfs.send(one.process, signal.SIGCONT)
        self.wakes.alarm(grace)

    def time_is_up(self) -> None:
        if self.ending == "kill":
            self.longest_pause = _STUCK_PAUSE
            self.say("stuck", len(self.members()))
        elif self.ending == "term":
            self.start_killing()
        else:
            self.killed.update(one.process for one in self.members())
            self.end(min(LEFTOVER_GRACE, self.order["grace"]))

    def start_killing(self) -> None:
        self.ending = "kill"
        self.killed.update(one.process for one in self.members())
        self.pause = _SHORTEST_PAUSE
        self.wakes.alarm(self.order["stuck_after"])

    def kill(self) -> None:
        """One pass; repeated until no child is left, with longer and longer pauses."""
        if self.means == "cgroup" and self.order["cgroup"]:
            cgroup.kill(self.order["cgroup"])
        if self.launch is not None and self.launch.init is not None:
            procfs.send(self.launch.init, signal.SIGKILL)
        found = self.members()
        procfs.kill(found)
        new = {one.process for one in found} - self.killed
        self.killed |= new
        self.pause = _SHORTEST_PAUSE if new else min(self.pause * 2, self.longest_pause)

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Tell that all has gone, and stay until that is recorded."""
        self.say("gone", len(self.killed), f"{self.cpu:.6f}", self.largest)
        self.ending = "kill"  # there is nothing left to be asked for
        while not (self.recorded or self.orphaned):
            for fd, _ in self.poll.poll():
                self.handle(fd)
        if self.order["cgroup"]:
            cgroup.remove(self.order["cgroup"])
        if self.orphaned and self.order["orphaned"]:
            restore_signals()
            os.execvp(self.order["orphaned"][0], self.order["orphaned"])


def receive(control: int) -> Order | None:
    """The order of the wrapper; None if it went before it had said all."""
    data = b""
    size = 8
    while len(data) < size:
        chunk = os.read(control, min(size - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
        if size == 8 and len(data) == 8:
            size += int.from_bytes(data, "little")
    return marshal.loads(data[8:])


def main() -> NoReturn:
    code = FAILED
    try:
        control = int(sys.argv[1])
        os.set_inheritable(control, False)
        order = receive(control)
        if order is not None:
            libc.adopt_orphans()
            # What we keep can stop us, and then nobody but the kernel is left to have us go on.
            libc.signal_when_parent_goes(signal.SIGCONT)
            keeper = Keeper(control, order)
            try:
                keeper.start()
                keeper.keep()
            except BaseException:
                # Our own code failed: end the tree all the same; the wrapper sees that we went.
                keeper.means, keeper.pause = keeper.means or "cgroup", _SHORTEST_PAUSE
                while not keeper.reap():
                    keeper.kill()
                    select.select((), (), (), _SHORTEST_PAUSE / 1000)
                raise
            keeper.finish()
            code = 0
    finally:
        # Whatever went wrong here, it is no output of the command.
        os._exit(code)
