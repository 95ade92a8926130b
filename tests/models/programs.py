"""Small programs that take the part of CLI agents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ModelError
from holdfast.models.command import Command
from holdfast.models.protocol import Message, Request

Make = Callable[..., str]
"""Makes a program of a script in Python and, perhaps, a name; its path."""
RECORD = """
    import json, sys
    told = {"argv": sys.argv[1:], "stdin": sys.stdin.buffer.read().decode("utf-8", "replace")}
"""


def question(text: str = "How are you?", **more: Any) -> Request:
    return Request((Message("user", text),), **more)


def printing(*lines: object, code: int = 0, err: str = "") -> str:
    """A script that notes how it was called, and prints this."""
    out = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return (
        RECORD
        + f"""
    open({"__file__"} + ".told", "w").write(json.dumps(told))
    sys.stderr.write({err!r})
    sys.stdout.write({out!r} + "\\n")
    sys.exit({code})
    """
    )


def told(program: str) -> dict[str, Any]:
    return json.loads(Path(program + ".told").read_text(encoding="utf-8"))


def failure(model: Command, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        model.ask(request or question())
    assert caught.value.hint
    return caught.value


def running(word: str) -> list[str]:
    """The processes that have this in their command line; in whichever namespace they are."""
    found: list[str] = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and int(each.name) != os.getpid():
            with suppress(OSError):
                if word.encode() in (each / "cmdline").read_bytes():
                    found.append(each.name)
    return found
