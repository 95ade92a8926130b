"""A home in which everything went wrong that can: made by verbs, kills and careless hands."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.ledger.shell import PATIENCE, Shell, ended

HOSTILE = [
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "'; window.pwned = 1; //",
    "javascript:window.pwned=1",
    "{{ 7 * 7 }}",
    "</textarea><svg/onload=window.pwned=1>",
]
WIDE = "w" * 400
RIGHT_TO_LEFT = "report\u202etxt.exe \u2066x"
LONG_NAME = "n" * 64


def aftermath(place: Path) -> Shell:
    shell = Shell(place)
    assert shell("init", "rio", "clay", "vida", "leo", "astra", LONG_NAME).code == 0
    _sessions(shell)
    _messages(shell)
    _tasks(shell)
    _notes(shell)
    _hostile(shell)
    _damage(shell)
    return shell


def _sessions(shell: Shell) -> None:
    """Of rio: one that went well, one that failed, one too slow, one that was killed, and one
    that was refused because another was under way."""
    assert shell("run", "--agent", "rio", "--quiet", "--", "echo", "all is well").code == 0
    failed = shell("run", "--agent", "rio", "--quiet", "--", "sh", "-c", "echo no >&2; exit 3")
    assert failed.code == 3
    slow = ("run", "--agent", "rio", "--quiet", "--timeout", "1s", "--", "sleep", "60")
    assert shell(*slow).code not in (0, 3)
    began = shell.place / "began"
    words = ("run", "--agent", "rio", "--quiet", "--", "sh", "-c", f"touch {began}; sleep 60")
    with ended(shell.start(*words)) as wrapper:
        until = time.monotonic() + PATIENCE
        while not began.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert shell("run", "--agent", "rio", "--quiet", "--", "true").code == 5
        wrapper.send_signal(signal.SIGKILL)
    assert shell("session", "sweep").code in (0, 1)


def _messages(shell: Shell) -> None:
    """To leo: one that waits, one that came back, one that came back too often, one too late,
    and files that are no messages."""

    def send(subject: str, *more: str) -> str:
        words = ("inbox", "send", "--from", "rio", "--to", "leo", "--subject", subject, *more)
        return str(shell("--json", *words, f"About: {subject}").json()["target"])

    send("Too late", "--expires", "1s")
    late = time.monotonic()
    dead = send("Nobody could")
    while shell("--json", "inbox", "take", "--agent", "leo", dead).code == 0:
        assert shell("inbox", "return", "--agent", "leo", dead).code == 0
    again = send("Came back", "--priority", "high")
    shell("inbox", "take", "--agent", "leo", again)
    shell("inbox", "return", "--agent", "leo", again)
    send("Waits")
    folder = shell.home / "state" / "leo" / "inbox"
    (folder / "empty.json").write_bytes(b"")
    (folder / "broken.json").write_bytes(b"{ not json")
    (folder / "folder.json").mkdir()
    (folder / "linked.json").symlink_to("/etc/hostname")
    time.sleep(max(0.0, 1.2 - (time.monotonic() - late)))


def _tasks(shell: Shell) -> None:
    """Of clay: one that failed too often and is parked, one done, one dropped, one begun."""
    for text in ("Fails each time", "Was easy", "Nobody asks", "Under way", "Not begun"):
        words = ("task", "add", "--agent", "clay", "--type", "research", text)
        assert shell(*words).code == 0
    for _ in range(3):
        words = ("run", "--agent", "clay", "--quiet", "--task", "task-001", "--", "false")
        assert shell(*words).code == 1
    for verb, id in (("done", "002"), ("drop", "003"), ("start", "004")):
        assert shell("task", verb, "--agent", "clay", f"task-{id}").code == 0


def _notes(shell: Shell) -> None:
    memory = shell.home / "state" / "leo" / "memory.md"
    words = ("memory", "note", "--agent", "leo", "--section", "Dead Ends", "The fee page is empty")
    assert shell(*words).code == 0
    memory.write_text(
        memory.read_text(encoding="utf-8") + "\nBy hand: ask about the fees again.\n",
        encoding="utf-8",
    )


def _hostile(shell: Shell) -> None:
    texts = " ".join([*HOSTILE, WIDE, RIGHT_TO_LEFT])
    name = LONG_NAME
    shell("ledger", "write", "--agent", name, "--event", "info", "--task", HOSTILE[0][:60], texts)
    shell("inbox", "send", "--from", "rio", "--to", name, "--subject", texts[:480], texts)
    shell("task", "add", "--agent", name, "--type", "research", texts)
    shell("memory", "note", "--agent", name, "--section", "Dead Ends", texts)
    shell("run", "--agent", name, "--quiet", "--question", texts, "--", "echo", texts)


def _damage(shell: Shell) -> None:
    """A report that cannot be read, one that is three days old, a line that was changed."""
    (shell.home / "state" / "clay" / "report.json").write_bytes(b"{ not json")
    report = shell.home / "state" / "vida" / "report.json"
    said = json.loads(report.read_bytes())
    report.write_text(json.dumps(said | {"updated_at": "2026-01-01T00:00:00Z"}), encoding="utf-8")
    os.utime(report, (1_767_225_600, 1_767_225_600))
    for number in range(3):
        assert shell.write(f"paid {number} dollars", agent="astra").code == 0
    (file,) = (shell.home / "ledger" / "astra").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"paid 1 dollars", b"paid 9 dollars"))
