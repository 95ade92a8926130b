"""A disk that cannot be written to when a session ends: told, and nothing old is damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.world import assert_one_end_each, files, journal, lifetime, run, shown
from tests.ledger.shell import Shell

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk"),
    pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount"),
]


@pytest.fixture
def small(shell: Shell) -> Iterator[Shell]:
    """A home on a disk of its own, of four megabytes, with one session behind it."""
    shutil.rmtree(shell.home)
    shell.home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(shell.home)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount here")
    try:
        shell("init", "rio", "--timezone", "UTC")
        assert run(shell, code="print('before')").code == 0
        yield shell
    finally:
        subprocess.run(["umount", "-l", str(shell.home)], check=True)


def filling(path: Path, code: int) -> str:
    """A command that leaves no byte of a disk free, and ends with `code`."""
    return (
        "import os\n"
        f"fd = os.open({str(path / 'filler')!r}, os.O_WRONLY | os.O_CREAT)\n"
        "size = 1 << 16\n"
        "while size:\n"
        "    try: os.write(fd, b'x' * size)\n"
        "    except OSError: size //= 2\n"
        f"print('the last word'); raise SystemExit({code})"
    )


def blocked(path: Path, code: int) -> str:
    """A command that makes a disk read-only, and ends with `code`."""
    words = ["mount", "-o", "remount,ro", str(path)]
    return (
        f"import subprocess; subprocess.run({words!r}, check=True)\n"
        f"print('the last word'); raise SystemExit({code})"
    )


def free(shell: Shell) -> None:
    subprocess.run(["mount", "-o", "remount,rw", str(shell.home)], check=True)
    (shell.home / "filler").unlink(missing_ok=True)


@pytest.mark.parametrize("code", [0, 3])
def test_a_failed_end_is_told_with_the_code_of_the_command(small: Shell, code: int) -> None:
    before = files(small, "state/rio")
    ran = run(small, code=filling(small.home, code))
    assert ran.code != 0
    assert "the last word" in ran.out
    assert f"code {code}" in ran.err
    assert "Traceback" not in ran.err
    after = files(small, "state/rio")
    for name, data in before.items():
        if name.endswith(".json"):
            json.loads(after[name])
        elif name.endswith(".jsonl"):
            assert after[name].startswith(data)
    free(small)
    # The journal may have had room for a line when nothing else had.
    status = small("--json", "session", "list").rows()[1]["status"]
    assert status in ("crashed", "error" if code else "completed")
    assert run(small, code="pass").code == 0
    assert lifetime(small)["sessions_total"] == 3
    assert shown(small, "session.json")["status"] == "completed"
    assert_one_end_each(small)


def test_a_full_disk_at_the_start_begins_no_session(small: Shell) -> None:
    subprocess.run([sys.executable, "-c", filling(small.home, 0)], check=True)
    marker = small.place / "ran"
    ran = run(small, code=f"open({str(marker)!r}, 'w')")
    assert ran.code != 0
    assert "hint:" in ran.err
    assert not marker.exists()
    free(small)
    assert run(small, code="pass").code == 0
    assert_one_end_each(small)


@pytest.mark.parametrize("how", [filling, blocked])
def test_a_session_that_cannot_be_ended_by_hand_can_be_later(small: Shell, how: object) -> None:
    small("session", "start", "--agent", "rio")
    program = how(small.home, 0)  # type: ignore[operator]
    subprocess.run([sys.executable, "-c", program], check=True)
    words = ("session", "end", "--agent", "rio", "--outcome", "completed")
    failed = small(*words)
    assert failed.code == 1
    assert "hint:" in failed.err
    free(small)
    if "is recorded" in failed.err:
        assert small("session", "sweep").code == 0
    else:
        assert small(*words).code == 0
    assert shown(small, "session.json")["status"] == "completed"
    ends = [line for line in journal(small) if line["event"] == "session_end"]
    assert len(ends) == 2
    assert_one_end_each(small)


def test_a_session_that_cannot_be_begun_by_hand_stops_no_later_one(small: Shell) -> None:
    subprocess.run([sys.executable, "-c", filling(small.home, 0)], check=True)
    failed = small("session", "start", "--agent", "rio")
    assert failed.code == 1
    assert "hint:" in failed.err
    free(small)
    if "is recorded" in failed.err:
        words = ("session", "end", "--agent", "rio", "--outcome", "error")
        assert small(*words).code == 0
    assert small("session", "start", "--agent", "rio").code == 0
    assert small("session", "end", "--agent", "rio", "--outcome", "completed").code == 0
    assert_one_end_each(small)
