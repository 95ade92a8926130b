"""What tests of process trees share: commands that misbehave, and looks at what is left."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import IO

from holdfast.errors import ConfigError
from holdfast.proc.limits import Means
from holdfast.proc.tree import Tree

PYTHON = (sys.executable, "-I", "-S", "-c")
PATIENCE = 60.0
"""Seconds until a wait is given up as hanging; the machine may be busy."""

DAEMON = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "{environment}" == "empty":
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
                "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
                "print('settled', flush=True)\\nwhile True: signal.pause()", "{word}"], {{}})
        print("settled", flush=True)
        while True:
            signal.pause()
    os._exit(0)
os.wait()
"""
"""Double-forks away from its parents, ignores SIGTERM and keeps our pipes open."""

BREEDER = """
import os, sys, time
print("breeding", flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.05)
            os.execv("/bin/sleep", ["sleep", "1000"])
        os._exit(0)
    os.wait()
    time.sleep(0.01)
"""
"""Leaves one daemon after the other, until it is ended."""


def living(word: str) -> list[int]:
    """Processes other than this one that have the word in their arguments or environment."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        for file in ("cmdline", "environ"):
            try:
                with open(f"/proc/{name}/{file}", "rb") as told:
                    if word.encode() in told.read():
                        found.append(int(name))
                        break
            except OSError:
                pass
    return found


def named(pid: int) -> str:
    """For messages."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat, open(f"/proc/{pid}/cmdline", "rb") as command:
            return f"{stat.read(60)!r} {command.read()!r}"
    except OSError:
        return f"{pid}, gone meanwhile"


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def next_line(stream: IO[bytes]) -> str:
    """The next line, which has to come in time; the stream must be unbuffered."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], PATIENCE)
        assert ready, "waited in vain for a line"
        byte = stream.read(1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


@cache
def lacking(means: Means) -> str | None:
    """Why this means cannot be had here, if so."""
    try:
        Tree(["true"], means=[means]).run()
    except ConfigError as error:
        return error.message
    return None
