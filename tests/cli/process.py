"""The toy command line, in this process and as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from holdfast.cli.main import main
from tests.cli.toys import TABLE

REPO = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds until a test gives up on a process; reached only when something is broken."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> dict[str, Any]:
        """The error envelope, which is the last line on standard error."""
        return json.loads(self.err.splitlines()[-1])["error"]


def run(*words: str) -> Ran:
    """Run toys in this process."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main(words, TABLE)
    return Ran(code, out.getvalue(), err.getvalue())


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    # Unbuffered output would hide a missing flush; a real user's stream is buffered.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, **changes}


def command(*words: str | bytes) -> list[str | bytes]:
    return [sys.executable, "-m", "tests.cli.toys", *words]


def spawn(*words: str | bytes, env: Mapping[str, str] = {}, **streams: Any) -> Ran:
    """Run toys as a process."""
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    done = subprocess.run(
        command(*words), cwd=REPO, env=environment(env), timeout=PATIENCE, check=False, **settings
    )
    return Ran(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


@contextlib.contextmanager
def started(*words: str) -> Iterator[Started]:
    """Toys as a process whose three streams are in our hands, ended when the test is."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command(*words), cwd=REPO, env=environment({}), stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        yield Started(process, process.stdin, process.stdout, process.stderr)
    finally:
        process.kill()
        process.wait(PATIENCE)
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def say(self, line: bytes) -> None:
        self.stdin.write(line)
        self.stdin.flush()

    def read_line(self) -> str:
        """The next line that the process has really let go of."""
        number, line, end = self.stdout.fileno(), b"", time.monotonic() + PATIENCE
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([number], [], [], end - time.monotonic())
            assert ready, f"no line came; so far {line!r}"
            byte = os.read(number, 1)
            assert byte, f"the output ended after {line!r}"
            line += byte
        return line.decode().rstrip("\n")

    def ended(self) -> tuple[int, str]:
        """Exit code and standard error of a process that ends by itself."""
        code = self.process.wait(PATIENCE)
        return code, self.stderr.read().decode()


def python(code: str, *words: str) -> str:
    """Standard output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=REPO,
        env=environment({}),
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout.decode()
