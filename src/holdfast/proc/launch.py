"""How the keeper starts a command: by the first means that works, held at a gate.

Runs in the keeper and in forks of it, so it imports next to nothing, and a fork never returns.
"""

from __future__ import annotations

import os

from holdfast.proc import cgroup, libc, procfs
from holdfast.proc.procfs import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    class Order(TypedDict):
        """What the wrapper wants."""

        wrapper: int
        program: bytes
        command: list[bytes]
        environment: dict[bytes, bytes]
        cwd: bytes | None
        means: list[str]
        cgroup: str | None
        users: bool
        """Whether a pid namespace takes a user namespace too."""
        grace: float
        stuck_after: float
        orphaned: list[bytes] | None


IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
"""By the keeper: it goes when its work is done."""
FAILED = 70


class CannotStart(Exception):
    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage, number)
        self.stage, self.number = stage, number


class Launch:
    """A command that exists and has not begun."""

    def __init__(self, order: Order, control: int) -> None:
        self.order = order
        self.process: procfs.Process = 0, 0
        self.main: int | None = None
        """The command, if it is a child of the keeper."""
        self.init: procfs.Process | None = None
        """The first process of the pid namespace, if there is one."""
        self._control = control
        self._gate_in, self._gate = os.pipe()
        self.refusal, self._refusal_in = os.pipe()
        """Ends when the command runs; before that, a line if it could not."""
        self.news, self._news_in = os.pipe()
        """What the first process of a pid namespace tells."""

    @property
    def held(self) -> bool:
        return self._gate >= 0

    def begin(self) -> None:
        """Open the gate."""
        if self.held:
            try:
                os.write(self._gate, b"g")
            except OSError:
                pass  # it was killed at the gate
            os.close(self._gate)
            self._gate = -1

    def by(self, means: str) -> None:
        """Start it; CannotStart if this means is not to be had."""
        try:
            if means == "pidns":
                self._in_namespace()
            else:
                self._plainly(means)
        except CannotStart:
            for fd in (self._gate, self.refusal, self.news):
                os.close(fd)
            raise

    # --- in the keeper ----------------------------------------------------------------------

    def _plainly(self, means: str) -> None:
        """As a child of the keeper, in a control group or only in a process group."""
        pid = fork()
        if pid == 0:
            with dying():
                self._child_of_keeper(means)
        self._close_their_ends()
        stage, number = read_line(self.news)
        found = procfs.stat(pid)
        if stage != b"forked" or found is None:
            raise CannotStart(means, int(number or b"0"))
        self.main, self.process = pid, found.process

    def _in_namespace(self) -> None:
        """As a child of the first process of a new pid namespace.

        A stem enters the namespace, so that the keeper stays outside; it goes at once and its
        child becomes the keeper's.
        """
        hold, release = os.pipe()
        stem = fork()
        if stem == 0:
            with dying():
                os.close(release)
                self._stem(hold)
        self._close_their_ends()
        os.close(hold)
        os.waitpid(stem, 0)
        try:
            stage, number = read_line(self.news)
            if stage != b"init":
                raise CannotStart("pidns", int(number or b"0"))
            init = procfs.stat(int(number))
            os.write(release, b"r")
        except BrokenPipeError:
            init = None
        finally:
            os.close(release)
        stage, number = read_line(self.news)
        below = [] if init is None else procfs.descendants(init.pid)
        if stage != b"forked" or init is None or not below:
            raise CannotStart("pidns", int(number or b"0"))
        self.init, self.process = init.process, below[0].process

    def _close_their_ends(self) -> None:
        for fd in (self._gate_in, self._refusal_in, self._news_in):
            os.close(fd)

    # --- in forks of it ---------------------------------------------------------------------

    def _child_of_keeper(self, means: str) -> NoReturn:
        try:
            if means == "cgroup":
                cgroup.join(self.order["cgroup"] or "")
            libc.signal_when_parent_goes(signal.SIGKILL)
        except OSError as error:
            self._give_up(b"join", error)
        self._tell(b"forked", 0)
        self._become()

    def _stem(self, hold: int) -> NoReturn:
        try:
            uid, gid = os.geteuid(), os.getegid()
            libc.new_namespaces(users=self.order["users"])
            if self.order["users"]:
                map_ourselves(uid, gid)
            init = os.fork()
        except OSError as error:
            self._give_up(b"stem", error)
        if init:
            self._tell(b"init", init)
            os._exit(0)
        self._first_process(hold)

    def _first_process(self, hold: int) -> NoReturn:
        """Reap for the namespace until nothing is left or the keeper kills us."""
        os.close(self._gate)
        self._gate = -1
        # Only then are we a child of the keeper: before, the end of the stem would have ended us.
        if os.read(hold, 1) != b"r":
            os._exit(FAILED)
        try:
            libc.signal_when_parent_goes(signal.SIGKILL)
            libc.mount_proc()
            child = os.fork()
        except OSError as error:
            self._give_up(b"mount", error)
        if child == 0:
            with dying():
                self._become()
        for fd in (self._gate_in, self._refusal_in, self._control):
            os.close(fd)
        forget_standard_streams()
        # A keeper that went before it could take us along does not open the gate either.
        self._tell(b"forked", 0)
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                os._exit(0)
            if pid == child:
                self._tell(b"exited", status)

    def _become(self) -> NoReturn:
        """Turn this fork into the command, once the wrapper knows of it."""
        if self._gate >= 0:
            os.close(self._gate)  # or we would hold our own gate open when the keeper goes
        os.close(self._control)
        os.close(self._news_in)
        os.setsid()
        restore_signals()
        if os.read(self._gate_in, 1) != b"g":
            os._exit(FAILED)
        order, stage = self.order, b"cwd"
        try:
            if order["cwd"] is not None:
                os.chdir(order["cwd"])
            stage = b"exec"
            os.execve(order["program"], order["command"], order["environment"])
        except OSError as error:
            os.write(self._refusal_in, b"%s %d\n" % (stage, error.errno or 0))
        os._exit(FAILED)

    def _tell(self, stage: bytes, number: int) -> None:
        os.write(self._news_in, b"%s %d\n" % (stage, number))

    def _give_up(self, stage: bytes, error: OSError) -> NoReturn:
        self._tell(stage, error.errno or 0)
        os._exit(FAILED)


class dying:
    """No fork of the keeper may come back from its block, whatever happens in it."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> NoReturn:
        os._exit(FAILED)


def fork() -> int:
    try:
        return os.fork()
    except OSError as error:
        raise CannotStart("fork", error.errno or 0) from None


def map_ourselves(uid: int, gid: int) -> None:
    """Be in the user namespace who we were outside."""
    for name, line in (
        ("setgroups", b"deny"),
        ("uid_map", b"%d %d 1" % (uid, uid)),
        ("gid_map", b"%d %d 1" % (gid, gid)),
    ):
        with open(f"/proc/self/{name}", "wb", buffering=0) as file:  # direct write: the kernel's
            file.write(line)


def restore_signals() -> None:
    """As a program expects them; what is ignored would stay so over exec."""
    signal.set_wakeup_fd(-1)
    for number in (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def forget_standard_streams() -> None:
    """They are the command's: its pipes end when the tree does."""
    with open(os.devnull, "r+b", buffering=0) as null:  # direct write: goes nowhere
        for fd in range(3):
            os.dup2(null.fileno(), fd)


def read_line(fd: int) -> tuple[bytes, bytes]:
    """Two words; empty at the end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            return b"", b""
        line += byte
    first, _, second = line.strip().partition(b" ")
    return first, second
