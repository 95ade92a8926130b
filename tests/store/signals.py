"""Ctrl-C at a chosen place: one after the other, wherever Python would let a signal in."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_LET_IN = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME")
"""Behind these instructions the interpreter looks whether a signal has come."""


def interrupted(deed: Callable[[], object], nth: int, where: str) -> str | None:
    """Do it, with a KeyboardInterrupt at the nth place in files whose path has `where` in it.

    Which place that was; None if it was over before.
    """
    before: dict[FrameType, str] = {}
    met, place = 0, None

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal met, place
        code = frame.f_code
        if where not in code.co_filename or place is not None:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last, before[frame] = before.get(frame), dis.opname[code.co_code[frame.f_lasti]]
            if last in _LET_IN:
                met += 1
                if met > nth:
                    place = f"{code.co_qualname}:{frame.f_lineno}"
                    raise KeyboardInterrupt
        return trace

    others = sys.gettrace()  # whoever measures what the tests run
    sys.settrace(trace)
    try:
        deed()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(others)
    return place
