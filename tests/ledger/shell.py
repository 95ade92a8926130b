"""Holdfast as its users meet it: as a process, as verbs, and as files on disk."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.clock import Clock
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows, Stream
from holdfast.ops.table import TABLE
from tests.forked import can_fork, forked, is_ordinary
from tests.nursery import nurseries

REPO = Path(__file__).resolve().parents[2]
PROGRAM = str(Path(sys.executable).parent / "holdfast")
PATIENCE = 60.0
"""Seconds until a test gives up on a process; reached only when something is broken."""

FIELDS = ["ts", "agent", "session_id", "event", "task_id", "source", "summary", "data"]
EVENTS = ["heartbeat", "task_start", "task_result", "error", "info"]
SESSION = re.compile(r"\d{4}-\d{2}-\d{2}_[a-z0-9][a-z0-9_-]*_\d{3,}")


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def rows(self) -> list[dict[str, Any]]:
        return self.json()["rows"]

    def error(self) -> dict[str, Any]:
        """The error envelope, which is the last line on standard error."""
        return json.loads(self.err.splitlines()[-1])["error"]


class Shell:
    """`holdfast` as a process, for a user whose files all lie below one directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.user, self.cwd = place / "user", place / "cwd"
        self.user.mkdir(exist_ok=True)
        self.cwd.mkdir(exist_ok=True)
        self.home = place / "home"

    def environment(self, changes: Mapping[str, str] = {}) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("HOLDFAST_", "XDG_", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TZ")
            )
        }
        mine = {"HOME": str(self.user), "XDG_STATE_HOME": str(self.place / "spools")}
        return {**kept, **mine, **changes}

    def command(self, words: Sequence[str | bytes]) -> list[str | bytes]:
        return [PROGRAM, "--home", str(self.home), *words]

    def __call__(
        self,
        *words: str | bytes,
        env: Mapping[str, str] = {},
        said: bytes = b"",
        before: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> Ran:
        """Run `holdfast --home HOME words…` to its end.

        `before` is called in a process that becomes a new program, `begin` in one that need not.
        """
        return self.run(self.command(words), env=env, said=said, before=before, begin=begin)

    def run(
        self,
        command: Sequence[str | bytes],
        *,
        env: Mapping[str, str] = {},
        said: bytes = b"",
        before: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
        cwd: Path | None = None,
    ) -> Ran:
        """Run any command; if it is ours, in a process that need not load Python."""
        place, whole = cwd or self.cwd, self.environment(env)
        if command[0] == PROGRAM and before is None and is_ordinary(env):
            told: tuple[int, bytes, bytes] | None = None
            # What `begin` replaces in this process is lost on a new program.
            if can_fork(2.0 if begin is not None else 0.0):
                told = forked(command[1:], whole, place, said, PATIENCE, begin)
            elif nurseries and begin is None:
                told = nurseries[-1].ran(command[1:], whole, place, said, PATIENCE)
            if told is not None:
                code, out, err = told
                return Ran(code, out.decode(), err.decode())
        done = subprocess.run(
            command,
            cwd=place,
            env=whole,
            input=said,
            capture_output=True,
            timeout=PATIENCE,
            preexec_fn=before or begin,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def write(self, text: str, *more: str, agent: str = "cls", event: str = "info") -> Ran:
        return self("ledger", "write", "--agent", agent, "--event", event, *more, "--", text)

    def start(
        self, *words: str, env: Mapping[str, str] = {}, command: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command or self.command(words),
            cwd=self.cwd,
            env=self.environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The process for the time of a block; it is gone afterwards."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[bytes]) -> str:
    """The next line that a process has really let go of."""
    assert process.stdout is not None
    number, line, end = process.stdout.fileno(), b"", time.monotonic() + PATIENCE
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([number], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"no line came; so far {line!r}"
        byte = os.read(number, 1)
        assert byte, f"the output ended after {line!r}"
        line += byte
    return line.decode().rstrip("\n")


class Verbs:
    """The verbs in this process, by a clock that the test turns."""

    def __init__(self, path: str, clock: Clock, layout: str | None = None) -> None:
        self.path, self.clock, self.layout = path, clock, layout
        self.warnings: list[str] = []

    def __call__(self, name: str, **arguments: Any) -> Any:
        """What the verb `name` gives back; a stream comes as the list of its rows."""
        operation = next(each for each in TABLE.operations if each.name == name)
        with Context(self.path, self.clock, self.layout) as context:
            try:
                result = operation.call(context, arguments)
                return list(result.rows) if isinstance(result, Stream) else result
            finally:
                self.warnings = context.take_warnings()

    def write(self, text: str, *, agent: str = "rio", event: str = "info", **more: Any) -> Any:
        return self("ledger write", text=text, agent=agent, event=event, **more)

    def rows(self, name: str, **arguments: Any) -> list[dict[str, Any]]:
        found = self(name, **arguments)
        assert isinstance(found, Rows)
        return [dict(row) for row in found.rows]

    def texts(self, **filters: Any) -> list[str]:
        """The summaries that `ledger list` shows."""
        return [row.get("summary", "") for row in self.rows("ledger list", **filters)]


def on_its_own(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Let verbs in this process see nothing of the user who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "spools"))


# --- what is on disk ------------------------------------------------------------------------


def day_files(home: str | Path, agent: str) -> list[Path]:
    return sorted(Path(home, "ledger", agent).glob("*.jsonl"))


def lines_in(home: str | Path, agent: str) -> list[bytes]:
    """Every line of an agent's ledger, cut at LF only."""
    return [line for file in day_files(home, agent) for line in split(file.read_bytes())]


def split(data: bytes) -> list[bytes]:
    assert not data or data.endswith(b"\n"), "the last line has no end"
    return data.split(b"\n")[:-1]


def entries_in(home: str | Path, agent: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_in(home, agent)]


def status_on_disk(home: str | Path, agent: str) -> dict[str, Any]:
    return json.loads(Path(home, "state", agent, "status.json").read_bytes())


def is_entry(record: Mapping[str, Any], events: Sequence[str] = EVENTS) -> bool:
    """Whether a record keeps the rules of the ledger schema 1.0."""
    texts = [record[name] for name in FIELDS[:-1]]
    return (
        list(record)[:8] == FIELDS
        and all(isinstance(text, str) for text in texts)
        and isinstance(record["data"], dict)
        and record["event"] in events
        and datetime.fromisoformat(record["ts"]).tzinfo is not None
        and SESSION.fullmatch(record["session_id"]) is not None
        and f"_{record['agent']}_" in record["session_id"]
    )


def is_status(record: Mapping[str, Any]) -> bool:
    """Whether a record keeps the rules of the status schema 1.0."""
    return (
        isinstance(record["agent"], str)
        and record["state"] in ("idle", "busy", "error", "offline")
        and datetime.fromisoformat(record["last_heartbeat"]).tzinfo is not None
        and (record["state"] != "error" or isinstance(record["last_error"], str))
    )
