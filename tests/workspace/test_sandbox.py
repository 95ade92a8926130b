"""What a program in the sandbox cannot reach, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.workspace.sandbox import Sandbox
from tests.jobs.desk import DONE, PYTHON, Desk

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")

AS_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
WRITES = """
import json, os
found = {"writable": [], "key": "untried"}
for top, names in (("/proc", sorted(os.listdir("/proc"))), ("/sys", os.listdir("/sys"))):
    for name in names:
        if name.isdigit() or os.path.islink(f"{top}/{name}"):
            continue
        for folder, _, files in os.walk(f"{top}/{name}"):
            for path in [f"{folder}/{each}" for each in files] or [folder]:
                if os.access(path, os.W_OK):
                    found["writable"].append(path)
        if os.path.isfile(f"{top}/{name}") and os.access(f"{top}/{name}", os.W_OK):
            found["writable"].append(f"{top}/{name}")
try:
    with open("/proc/sys/vm/swappiness", "r+") as key:
        same = key.read()
        key.seek(0)
        key.write(same)
    found["key"] = "written"
except OSError:
    found["key"] = "refused"
print(json.dumps(found))
"""
READS = """
import json, os, sys
def read(path):
    try:
        return open(path).read()
    except OSError:
        return ""
print(json.dumps({each: os.listdir(each) if os.path.isdir(each) else read(each)
                  for each in sys.argv[1:]}))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below /tmp, which is another one inside; and open to every user."""
    with tempfile.TemporaryDirectory(
        dir="/opt" if os.access("/opt", os.W_OK) else Path.home()
    ) as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.fixture(params=["root", "user"])
def user(request: pytest.FixtureRequest) -> list[str]:
    """The words before a command that have the user run it."""
    if os.geteuid() != 0:
        if request.param == "root":
            pytest.skip("this is an ordinary user")
        return []
    return [] if request.param == "root" else AS_USER


def output_of(words: list[str]) -> Any:
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def workspace_in(place: Path, user: list[str]) -> str:
    made = place / "workspace"
    made.mkdir()
    if user:
        os.chown(made, 65534, 65534)
    return str(made)


def test_a_sandboxed_program_writes_no_setting_of_the_kernel(place: Path, user: list[str]) -> None:
    probe = [PYTHON, "-c", WRITES]
    inside = Sandbox(workspace_in(place, user)).wrap(probe)
    assert output_of([*user, *inside]) == {"writable": [], "key": "refused"}
    if os.geteuid() == 0 and not user and os.access("/proc/sys/vm/swappiness", os.W_OK):
        outside = output_of(probe)
        assert outside["key"] == "written", "the probe can tell"
        assert "/proc/sys/kernel/core_pattern" in outside["writable"]


def test_a_sandboxed_program_makes_no_namespace_in_which_it_has_capabilities(
    place: Path, user: list[str]
) -> None:
    if "--disable-userns" not in Sandbox(str(place)).wrap([]):
        pytest.skip("bubblewrap before 0.8")
    tries = ["unshare", "--user", "--map-root-user", "true"]
    inside = Sandbox(workspace_in(place, user)).wrap(tries)
    ran = subprocess.run([*user, *inside], capture_output=True, text=True, check=False)
    assert ran.returncode != 0 and "unshare failed" in ran.stderr


def test_a_program_without_network_reaches_not_even_this_machine(
    place: Path, user: list[str]
) -> None:
    made = workspace_in(place, user)
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        )
        for network in (True, False):
            inside = Sandbox(made, network=network).wrap([PYTHON, "-c", script])
            ran = subprocess.run([*user, *inside], capture_output=True, text=True, check=False)
            assert (ran.returncode == 0) is network, ran.stderr


def test_what_is_hidden_is_empty_inside_even_if_it_is_replaced_meanwhile(
    place: Path, user: list[str]
) -> None:
    (place / "cache").mkdir()
    for path in (place / "cache" / "dashboard.json", place / "key", place / "seen"):
        path.write_text("token")
    # The record of a dashboard that starts later is another file of the same name.
    script = f"echo ready; read line; cat {place}/cache/* {place}/key {place}/seen"
    hidden = (str(place / "cache"), str(place / "key"), str(place / "absent"))
    words = Sandbox(workspace_in(place, user), hidden=hidden).wrap(["sh", "-c", script])
    with subprocess.Popen(
        [*user, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as inside:
        assert inside.stdin is not None and inside.stdout is not None
        assert inside.stdout.readline() == "ready\n"
        (place / "next").write_text("new token")
        os.replace(place / "next", place / "cache" / "dashboard.json")
        inside.stdin.write("\n")
        inside.stdin.close()
        assert inside.stdout.read() == "token", "what is not hidden is read"


def test_a_sandboxed_worker_sees_neither_the_token_of_the_dashboard_nor_a_key(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = place / "elsewhere" / "keys.json"
    named.parent.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    desk = Desk(place / "desk")
    assert desk("key", "new").code == 0
    (place / "config" / "holdfast" / "signing.key").write_text("secret")
    monkeypatch.setenv("HOLDFAST_KEYS", str(named))
    assert desk("key", "new").code == 0
    desk.ok("ledger", "write", "--agent", "rio", "--event", "info", "x")
    (desk.home / "cache").mkdir(exist_ok=True)
    (desk.home / "cache" / "dashboard.json").write_text('{"token": "secret"}')
    secrets = [desk.home / "cache", desk.home / ".mask-key", place / "config/holdfast", named]
    answer = f"\nprint({json.dumps(DONE)!r})"
    # Not as arguments: a random name can look like a secret, and the spec is masked.
    reads = f"import sys\nsys.argv[1:] = {[str(each) for each in secrets]!r}\n" + READS
    worker = desk.program(reads.replace("print(", "open('seen', 'w').write(") + answer)
    desk.new("--isolation", "sandbox", "--worker", worker, "--supervisor", desk.script(DONE))
    ran = desk("job", "run", "demo")
    assert ran.code == 0, ran.out + ran.err
    seen = json.loads((desk.home / "jobs/demo/workspace/seen").read_text())
    outside = output_of([PYTHON, "-c", READS, *map(str, secrets)])
    assert all(outside.values()), "the probe can tell, and the tags have a key by now"
    assert seen == {str(secrets[0]): [], str(secrets[1]): "", str(secrets[2]): [], str(named): ""}
