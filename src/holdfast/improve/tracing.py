"""Records which lines of Python files in a folder run.

Not imported by Holdfast: it is copied beside a benchmark as `sitecustomize.py`, which every Python
that the benchmark starts loads.  Each line is written the first time it runs, so that a process
that is killed has still recorded what it ran.
"""

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

ROOT, OUT = "HOLDFAST_TRACE_ROOT", "HOLDFAST_TRACE_OUT"


def start(root: str, out: str) -> None:
    inside = os.path.realpath(root) + os.sep
    fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # noqa: TID251 - direct write: beside a benchmark
    seen: set[tuple[str, int]] = set()
    names: dict[str, str | None] = {}
    lines: dict[CodeType, set[int]] = {}

    def name_of(code: CodeType) -> str | None:
        if code.co_filename not in names:
            path = os.path.realpath(code.co_filename)
            ours = path.startswith(inside) and code.co_filename[:1] != "<"
            names[code.co_filename] = path[len(inside) :] if ours else None
        return names[code.co_filename]

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            note(frame.f_code, frame.f_lineno)
        return local

    def note(code: CodeType, line: int) -> None:
        left = lines[code]
        if line in left:
            left.discard(line)
            name = name_of(code)
            if name is not None and (name, line) not in seen:
                seen.add((name, line))
                os.write(fd, b"%d %s\n" % (line, os.fsencode(name)))

    def entered(frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if name_of(code) is None:
            return None
        if code not in lines:
            lines[code] = {line for _, _, line in code.co_lines() if line is not None}
        # A function all of whose lines ran costs no more than its calls.
        return local if lines[code] else None

    threading.settrace(entered)
    sys.settrace(entered)


if os.environ.get(OUT) and os.environ.get(ROOT):
    start(os.environ[ROOT], os.environ[OUT])
