"""A ledger that cannot be written: nothing is pretended, and nothing but that is lost."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from tests.ledger.shell import Ran, Shell, entries_in, lines_in, status_on_disk

_CAPABILITIES_OF_ROOT_OVER_MODES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_PR_CAPBSET_DROP = 24
_LIBC = ctypes.CDLL(None, use_errno=True)


def obey_modes() -> None:
    """Make the program to be run heed the mode bits, even as root."""
    if os.geteuid() == 0:
        for capability in _CAPABILITIES_OF_ROOT_OVER_MODES:
            if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")


def write(shell: Shell, *more: str) -> Ran:
    """The start of a task, by somebody whom mode bits stop."""
    words = ("--agent", "cls", "--event", "task_start", "--task", "wo-2", *more, "second")
    return shell("ledger", "write", *words, before=obey_modes)


def read_only_mount(shell: Shell, place: Path, *words: str) -> Ran:
    """`holdfast words…` in a world where `place` is mounted read-only."""
    if shell.run(["unshare", "--map-root-user", "--mount", "true"]).code:
        pytest.skip("this machine lets nobody make a mount namespace")
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(place)]
    return shell.run([*inside, *map(os.fsdecode, shell.command(words))])


@pytest.fixture(params=["day file", "lock file", "new directory"])
def blocked(request: pytest.FixtureRequest, shell: Shell) -> Shell:
    """A ledger of one finished task that mode bits keep from growing."""
    assert shell.write("first", "--task", "wo-1", event="task_result").code == 0
    directory = shell.home / "ledger/cls"
    match request.param:
        case "day file":
            next(directory.glob("*.jsonl")).chmod(0o400)
        case "lock file":
            (directory / ".lock").chmod(0o400)
        case _:
            os.rename(directory, shell.place / "away")
            directory.parent.chmod(0o500)
    return shell


def let_go(shell: Shell) -> None:
    """Take away what blocks a ledger."""
    away, directory = shell.place / "away", shell.home / "ledger/cls"
    directory.parent.chmod(0o700)
    if away.exists():
        os.rename(away, directory)
    for file in directory.iterdir():
        file.chmod(0o600)


def test_what_cannot_be_written_is_an_error_and_the_status_does_not_advance(
    blocked: Shell,
) -> None:
    before = (blocked.home / "state/cls/status.json").read_bytes()
    ran = write(blocked)

    assert ran.code == 3
    assert ran.out == ""
    assert "Permission denied" in ran.err
    assert "hint: " in ran.err
    assert (blocked.home / "state/cls/status.json").read_bytes() == before
    let_go(blocked)
    assert [each["summary"] for each in entries_in(blocked.home, "cls")] == ["first"]


def test_best_effort_succeeds_says_loudly_that_it_did_not_and_keeps_the_event(
    blocked: Shell,
) -> None:
    before = (blocked.home / "state/cls/status.json").read_bytes()
    ran = write(blocked, "--best-effort")

    assert ran.code == 0
    assert ran.err.startswith("warning: NOT written to the ledger: ")
    assert "✅" not in ran.out + ran.err
    assert "kept in " in ran.out
    assert (blocked.home / "state/cls/status.json").read_bytes() == before
    let_go(blocked)
    assert blocked.write("third").code == 0
    assert [each["summary"] for each in entries_in(blocked.home, "cls")] == [
        "first",
        "second",
        "third",
    ]
    assert status_on_disk(blocked.home, "cls")["last_task_id"] == "wo-2"


def test_the_error_says_which_file_it_was_about(blocked: Shell) -> None:
    ran = write(blocked, "--json")
    assert ran.error()["code"] == "not_ours"
    assert "ledger" in (ran.error()["path"] or "")


def test_a_read_only_disk_is_an_error_that_says_so(shell: Shell) -> None:
    shell.write("first")
    before = lines_in(shell.home, "cls")
    words = ("ledger", "write", "--agent", "cls", "--event", "info", "second")
    ran = read_only_mount(shell, shell.home, *words)

    assert ran.code == 1
    assert "Read-only file system" in ran.err
    assert "hint: " in ran.err
    assert lines_in(shell.home, "cls") == before


@pytest.mark.parametrize("words", ["status", "ledger list", "ledger verify", "check", "path cls"])
def test_every_reading_verb_works_on_a_read_only_disk(shell: Shell, words: str) -> None:
    shell.write("first")
    ran = read_only_mount(shell, shell.home, *words.split())
    assert (ran.code, "error" in ran.err) == (0, False)


@pytest.mark.parametrize("place", ["", "ledger", "ledger/cls"])
def test_a_file_in_place_of_a_directory_is_named_and_left_alone(shell: Shell, place: str) -> None:
    if place:
        assert shell("init", "--timezone", "UTC").code == 0
    thing = shell.home / place
    thing.parent.mkdir(parents=True, exist_ok=True)
    thing.write_text("precious", encoding="utf-8")

    ran = shell.write("text")
    assert ran.code in (1, 3)
    assert str(thing) in ran.err
    assert "hint: " in ran.err
    assert shell.write("text", "--best-effort").code == 0
    assert thing.read_text(encoding="utf-8") == "precious"

    thing.unlink()
    assert shell.write("later").code == 0
    assert [each["summary"] for each in entries_in(shell.home, "cls")] == ["text", "later"]


def test_best_effort_does_not_excuse_a_wrong_call(shell: Shell) -> None:
    ran = shell.write("text", "--best-effort", event="deployed")
    assert (ran.code, ran.out) == (2, "")


def test_an_event_that_can_be_kept_nowhere_is_called_lost(shell: Shell) -> None:
    shell.home.write_text("a file", encoding="utf-8")
    (shell.place / "spools").write_text("a file", encoding="utf-8")
    ran = shell.write("text", "--best-effort")
    assert ran.code == 0
    assert "warning: NOT written to the ledger" in ran.err
    assert "warning: NOT kept for later either" in ran.err
    assert "lost" in ran.out
