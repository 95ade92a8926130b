"""A command of ours as a process that need not begin with loading Python.

Most of what a short command costs is imports.  A copy of the process that runs the tests has them
behind it; otherwise it is a process like any other, with its own number, files, folder and
environment.  Where that would make a difference, the caller starts a real one.
"""

from __future__ import annotations

import gc
import io
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NoReturn

from holdfast.mask.text import hits

OWN_START = ("HOLDFAST_FAILPOINTS", "HOLDFAST_DEBUG", "PYTHON", "COVERAGE", "LD_", "OTEL_")
"""Variables that are read when a process begins."""


_LATE = ("click", "ctypes", "jsonschema", "pickle", "re2", "holdfast.models.scripted")
"""What many verbs load when they need it."""


@cache
def load() -> None:
    """What verbs load, once for all copies: most of what a short one costs."""
    for package in ("holdfast.cli", "holdfast.mask", "holdfast.ops"):
        for each in iter_modules(import_module(package).__path__, f"{package}."):
            import_module(each.name)
    for name in _LATE:
        import_module(name)
    hits(b"--token=x https://a:b@c")  # its patterns are compiled when they are needed
    gc.freeze()


def is_ordinary(env: Mapping[str, str]) -> bool:
    """Whether these changes of the environment are no reason for a process of its own."""
    return not any(name.startswith(OWN_START) for name in env)


def can_fork(patience: float = 0.0) -> bool:
    """Whether a copy of this process goes on; with several threads it may not.

    A thread that another test left is on its way out: it is waited for that long.
    """
    for each in threading.enumerate():
        if patience and each is not threading.current_thread():
            each.join(patience)
    return threading.active_count() == 1


def forked(
    words: Sequence[str | bytes],
    env: Mapping[str, str],
    cwd: Path,
    said: bytes,
    patience: float,
    begin: Callable[[], None] | None = None,
) -> tuple[int, bytes, bytes]:
    """Run `holdfast words…`; its exit code as a shell has it, and what it printed."""
    load()
    with streams(said) as (given, heard):
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            become(words, env, cwd, given, begin)
        watch = os.pidfd_open(pid)
        try:
            listen(watch, given, heard, patience, lambda: os.kill(pid, signal.SIGKILL))
        finally:
            os.close(watch)
            _, status = os.waitpid(pid, 0)
    out, err = heard.values()
    return os.waitstatus_to_exitcode(status), out, err


@contextmanager
def streams(said: bytes) -> Iterator[tuple[tuple[int, int, int], dict[int, bytes]]]:
    """The standard streams of a copy, and what is heard at the other ends of two of them."""
    with tempfile.TemporaryFile() as given:
        given.write(said)
        given.seek(0)
        # Pipes, because a child that may not write to files still speaks.
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        try:
            yield (given.fileno(), out_end, err_end), {out: b"", err: b""}
        finally:
            os.close(out)
            os.close(err)


def listen(
    watch: int,
    given: tuple[int, int, int],
    heard: dict[int, bytes],
    patience: float,
    kill: Callable[[], None],
) -> None:
    """Listen until the process has ended; who it left behind may go on speaking unheard."""
    os.close(given[1])
    os.close(given[2])
    deadline = time.monotonic() + patience
    open_ones = {watch, *heard}
    while True:
        ready = select.select(open_ones, [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            kill()
            raise AssertionError(f"still running after {patience:g} s")
        spoke = [each for each in ready if each != watch]
        for each in spoke:
            got = os.read(each, 1 << 16)
            heard[each] += got
            if not got:
                open_ones.remove(each)
        if not spoke:
            return


def become(
    words: Sequence[str | bytes],
    env: Mapping[str, str],
    cwd: Path,
    descriptors: tuple[int, int, int],
    begin: Callable[[], None] | None = None,
) -> NoReturn:
    code = 70
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 4096)
        os.chdir(cwd)
        for name in [*os.environ]:
            del os.environ[name]
        os.environ.update(env)
        time.tzset()
        warnings.resetwarnings()
        signal.set_wakeup_fd(-1)
        sys.unraisablehook = sys.__unraisablehook__
        sys.excepthook = sys.__excepthook__
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
        sys.stderr = io.TextIOWrapper(
            io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
        )
        sys.argv = ["holdfast", *(os.fsdecode(word) for word in words)]
        gc.disable()
        if begin is not None:
            begin()
        from holdfast.cli.main import main  # noqa: PLC0415 - in the child only

        code = main()
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code & 0xFF)
