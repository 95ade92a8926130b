"""No program that Holdfast runs changes anything over HTTP, even with the token."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.proc import procfs
from tests.jobs.desk import DONE, PYTHON
from tests.ledger.shell import Shell
from tests.web.board import Board, up

PLAIN = "ask()"
FORKED = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ask()
    os._exit(0)
os.wait()
import time
while not os.path.exists(out):
    time.sleep(0.01)
"""
UNDUMPABLE = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); ask()"
OWN_TABLE = """
def in_thread():
    ctypes.CDLL(None).unshare(0x400)
    ask()
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
"""
IN_FLIGHT = """
here, there = socket.socketpair()
wire = socket.create_connection(place, timeout=20)
socket.send_fds(here, [b"x"], [wire.fileno()])
wire.sendall(request)
wire.close()
import time
time.sleep(1)
_, fds, _, _ = socket.recv_fds(there, 1, 1)
tell(socket.socket(fileno=fds[0]))
"""
LEAVES = """
wire = sent()
wire.close()
open(out, "w").write("left")
"""
WAYS = {
    "plain": PLAIN,
    "daemon": FORKED,
    "undumpable": UNDUMPABLE,
    "own table": OWN_TABLE,
    "in flight": IN_FLIGHT,
    "leaves": LEAVES,
}


def probe(board: Board, way: str, out: Path, text: str) -> list[str]:
    """A program that asks for a change in this way and writes down what it is told."""
    body = json.dumps({"agent": "rio", "event": "info", "text": text})
    request = (
        f"POST /api/ledger/write HTTP/1.1\r\nHost: {board.host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"X-Holdfast-Token: {board.token}\r\n\r\n{body}"
    )
    code = f"""
import ctypes, os, socket, threading
out, place, request = {str(out)!r}, ("127.0.0.1", {board.port}), {request.encode()!r}
def sent():
    wire = socket.create_connection(place, timeout=20)
    wire.sendall(request)
    return wire
def tell(wire):
    with open(out + ".next", "wb") as file:
        while told := wire.recv(1 << 16):
            file.write(told)
    os.rename(out + ".next", out)
def ask():
    tell(sent())
{WAYS[way]}
"""
    return [sys.executable, "-S", "-E", "-c", code]


def sees_all() -> bool:
    """Whether the descriptors of all processes but the first are shown to us."""
    shown = [os.access(f"/proc/{pid}/fd", os.R_OK) for pid in procfs.everything() if pid != 1]
    return os.geteuid() == 0 and all(shown)


def written(board: Board, text: str) -> bool:
    rows = board.get("/api/ledger/list?limit=1000").json()["rows"]
    return any(text in json.dumps(row) for row in rows)


@pytest.mark.parametrize("way", WAYS)
def test_a_program_of_a_session_changes_nothing_although_it_has_the_token(
    board: Board, tmp_path: Path, way: str
) -> None:
    if way == "in flight" and not sees_all():
        pytest.skip("the connection could be that of a process which is not shown")
    out, text = tmp_path / "out", f"by a program {way}"
    ran = board.shell("run", "--agent", "rio", "--", *probe(board, way, out, text))
    assert ran.code == 0, ran
    told = out.read_text()
    if way != "leaves":
        assert told.startswith("HTTP/1.1 403") and '"program"' in told, told
    assert not written(board, text)


def test_the_same_request_of_a_person_is_granted(board: Board, tmp_path: Path) -> None:
    # While a program of ours runs, and with an environment that says nothing.
    with subprocess.Popen(
        board.shell.command(["run", "--agent", "clay", "--", "sh", "-c", "echo up; read x"]),
        env=board.shell.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        out = tmp_path / "out"
        words = probe(board, "plain", out, "by a person")
        subprocess.run(["env", "-i", *words], check=True)
        assert out.read_text().startswith("HTTP/1.1 200"), out.read_text()
        assert written(board, "by a person")
        other.kill()


def test_an_agent_gets_no_link_either(board: Board) -> None:
    ran = board.shell("run", "--agent", "rio", "--", *map(str, board.shell.command(["up"])))
    assert ran.code != 0
    assert "login?key=" not in ran.out + ran.err
    assert "programs that Holdfast runs" in ran.out + ran.err


@pytest.fixture
def apart() -> Iterator[Shell]:
    """With a home that is not below /tmp, which is another one in the sandbox."""
    place = "/opt" if os.access("/opt", os.W_OK) else str(Path.home())
    with tempfile.TemporaryDirectory(dir=place) as made:
        yield Shell(Path(made))


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")
@pytest.mark.parametrize("isolation", ["sandbox", "directory"])
def test_no_worker_approves_a_job_that_waits_for_a_person(apart: Shell, isolation: str) -> None:
    """Neither through the dashboard, with the token, nor by the command line."""
    assert apart("init", "rio").code == 0
    with up(apart) as board:
        board.log_in()
        words = list(map(str, apart.command(["job", "steward", "waits", "approve"])))
        code = f"""
import json, subprocess, urllib.error, urllib.request
request = urllib.request.Request("http://localhost:{board.port}/api/job/steward",
    json.dumps({{"id": "waits", "decision": "approve"}}).encode(),
    {{"content-type": "application/json", "x-holdfast-token": {board.token!r}}})
try:
    told = urllib.request.urlopen(request).status
except urllib.error.HTTPError as error:
    told = error.code
try:
    ran = subprocess.run({words!r}, capture_output=True, text=True)
    ended = [ran.returncode, ran.stderr]
except FileNotFoundError:  # Holdfast is installed below /tmp, which is another one in the sandbox
    ended = [-1, "not there"]
open("told", "w").write(json.dumps([told, *ended]))
print({json.dumps(DONE)!r})
"""
        worker, script = apart.cwd / "worker.py", apart.cwd / "script.json"
        worker.write_text(code)
        script.write_text(json.dumps({"replies": [DONE]}))
        spec = apart.cwd / "spec.json"
        phases = [{"name": "work", "model": f"scripted:{script}", "approval": True}]
        spec.write_text(json.dumps({"prompt": "P", "phases": phases}))
        assert apart("job", "new", str(spec), "--id", "waits").code == 0
        apart("job", "run", "waits")
        assert waiting(board) == ["waits"]
        asks = f"command:{PYTHON} -S -E {worker}"
        made = apart("job", "new", "--prompt", "P", "--isolation", isolation, "--worker", asks,
                     "--supervisor", f"scripted:{script}", "--id", "own")  # fmt: skip
        assert made.code == 0, made
        ran = apart("job", "run", "own")
        assert ran.code == 0, (ran, apart("job", "history", "own").out)
        told = json.loads((apart.home / "jobs/own/workspace/told").read_text())
        assert told[0] == 403, (told, ran)
        assert told[1] != 0
        if isolation == "directory":
            assert "cannot make a person's decision" in told[2]
        assert waiting(board) == ["waits"]
        # The control: the same call of a person.
        answer = board.post("/api/job/steward", {"id": "waits", "decision": "approve"})
        assert answer.status == 200, answer
        assert waiting(board) == []


def waiting(board: Board) -> list[str]:
    rows = board.get("/api/job/list?waiting=true").json()["rows"]
    return [row["job"] for row in rows]
