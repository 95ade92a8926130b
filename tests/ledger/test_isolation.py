"""With a home named, no byte outside it changes; and a write loads only what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.ledger.shell import PROGRAM, REPO, Shell

CALLS = [
    ["init", "rio", "clay", "--timezone", "Europe/Berlin"],
    ["ledger", "write", "--agent", "rio", "--event", "task_start", "--task", "wo-1", "go"],
    ["ledger", "write", "--agent", "rio", "--event", "error", "--session", "new", "it broke"],
    ["ledger", "write", "--agent", "rio", "--event", "info", "--best-effort", "fine"],
    ["ledger", "write", "--agent", "rio", "--event", "nonsense", "refused"],
    ["ledger", "list"],
    ["ledger", "tail"],
    ["ledger", "verify", "--json"],
    ["status"],
    ["check"],
    ["rebuild"],
    ["doctor", "--fix"],
    ["path", "rio"],
    ["path", "nobody"],
    ["--help"],
]
HEAVY = {
    "asyncio", "cryptography", "ctypes", "difflib", "fastapi", "genai_prices", "hypothesis",
    "jinja2", "jsonschema", "platformdirs", "pydantic", "pytest", "re2", "shutil", "socket",
    "sqlite3", "ssl", "subprocess", "tempfile", "tomlkit", "uvicorn", "yaml", "zstandard",
}  # fmt: skip


def everything(*places: Path) -> dict[str, tuple[int, int, int, str]]:
    """Name, kind, time and content of everything below some places."""
    found: dict[str, tuple[int, int, int, str]] = {}
    for place in places:
        for path in [place, *place.rglob("*")]:
            stat = path.lstat()
            content = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (stat.st_mode, stat.st_ino, stat.st_mtime_ns, content)
    return found


@pytest.fixture
def lived_in(shell: Shell) -> Shell:
    """A user who has files, also where a home would be looked for."""
    for name in (".config/app.toml", ".local/share/app/data", ".bashrc"):
        file = shell.user / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious", encoding="utf-8")
    (shell.cwd / "notes.txt").write_text("precious", encoding="utf-8")
    (shell.cwd / "ledger").mkdir()
    return shell


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_with_a_home_named_no_byte_outside_it_changes(lived_in: Shell, how: str) -> None:
    shell = lived_in
    env = {"HOLDFAST_HOME": str(shell.home)} if how == "environment" else {}
    named = ["--home", str(shell.home)] if how == "flag" else []
    before = everything(shell.user, shell.cwd)

    codes = [shell.run([PROGRAM, *named, *words], env=env).code for words in CALLS]

    # An event is refused, an agent is in error, and nobody is not there.
    assert codes == [0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 4, 0]
    assert everything(shell.user, shell.cwd) == before
    assert sorted(os.listdir(shell.place)) == ["cwd", "home", "user"]


def test_a_relative_home_is_the_one_below_the_working_directory(shell: Shell) -> None:
    words = ["ledger", "write", "--agent", "rio", "--event", "info", "text"]
    assert shell.run([PROGRAM, "--home", "here", *words]).code == 0
    assert (shell.cwd / "here/ledger/rio").is_dir()


def test_writing_an_event_loads_nothing_heavy(shell: Shell) -> None:
    code = (
        "import sys; from holdfast.cli.main import main; "
        "code = main(sys.argv[1:]); print(*sorted(sys.modules)); sys.exit(code)"
    )
    words = ["ledger", "write", "--agent", "cls", "--event", "info", "--data", '{"a": 1}', "text"]
    done = subprocess.run(
        [sys.executable, "-c", code, "--home", str(shell.home), *words],
        cwd=REPO,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "holdfast.ledger.book" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
