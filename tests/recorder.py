"""What a piece of work costs in counts that are the same on every machine."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast
from holdfast.store.vfs import RealVfs

_OURS = str(Path(holdfast.__file__).parent) + os.sep
_PYTHON = (sys.prefix + os.sep, sys.base_prefix + os.sep)
"""Where imports come from."""
_INLINED = {"<listcomp>", "<setcomp>", "<dictcomp>"}
"""Frames that Python 3.12 and later do not have."""
_open_recordings: list[Recorded] = []


@dataclass
class Recorded:
    """Counted over all threads of this process between the start and the end of a recording."""

    files: Counter[str] = field(default_factory=Counter[str])
    """How often each file was opened, by the name given to `open`."""
    appends: int = 0
    """Calls of `write` on a log."""
    frames: int = 0
    """The deepest stack of functions of Holdfast in one thread."""
    calls: int = 0
    """Calls of functions of Holdfast."""
    _depth: Counter[int] = field(default_factory=Counter[int])
    """Of each thread."""

    @property
    def opens(self) -> int:
        return self.files.total()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`: follow how deep each thread is in functions of Holdfast."""
        code = frame.f_code
        if code.co_name in _INLINED or not code.co_filename.startswith(_OURS):
            return
        thread = threading.get_ident()
        if event == "call":
            self.calls += 1
            self._depth[thread] += 1
            self.frames = max(self.frames, self._depth[thread])
        elif event == "return":
            self._depth[thread] -= 1


def _heed(event: str, given: tuple[Any, ...]) -> None:
    if event == "open" and _open_recordings:
        name, _, flags = given
        # A number is a descriptor that gets a buffer: nothing is opened.
        if isinstance(name, int) or flags & os.O_DIRECTORY or str(name).startswith(_PYTHON):
            return
        for each in _open_recordings:
            each.files[str(name)] += 1


# Such a hook stays for the life of the process.
sys.addaudithook(_heed)


@contextmanager
def recording() -> Generator[Recorded]:
    """Count what happens in a block, in its thread and in those that it starts."""
    found, write = Recorded(), RealVfs.write

    def counted(fd: int, data: Any, /) -> int:
        found.appends += os.readlink(f"/proc/self/fd/{fd}").endswith(".jsonl")
        return write(fd, data)

    _open_recordings.append(found)
    RealVfs.write = staticmethod(counted)
    threading.setprofile(found.profile)
    sys.setprofile(found.profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        RealVfs.write = staticmethod(write)
        _open_recordings.remove(found)
