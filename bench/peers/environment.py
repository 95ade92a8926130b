"""The environment the peers live in: built once, kept between runs, apart from the project's."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from bench.frame import REPO, SCRATCH

VENV = SCRATCH / "peers-venv"
REQUIREMENTS = REPO / "bench/peers/requirements.txt"
PATIENCE = 900
SHOWN = ("langgraph", "langgraph-checkpoint-sqlite", "dbos", "openai-agents")
_PYTHON = VENV / "bin/python"
_STAMP = VENV / "holdfast-stamp"


def build() -> str | None:
    """Make the environment if it is not there as pinned; the reason if that cannot be done."""
    wanted = sha256(REQUIREMENTS.read_bytes()).hexdigest() + f" {platform.python_version()}"
    if _STAMP.exists() and _STAMP.read_text(encoding="ascii") == wanted:
        return None
    print(f"peers: installing {', '.join(SHOWN)}", flush=True)
    pip = [str(_PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        [*pip, "-r", str(REQUIREMENTS)],
    ):
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            return f"the peers were not installed within {PATIENCE} s"
        if ran.returncode:
            shutil.rmtree(VENV, ignore_errors=True)
            said = (ran.stderr or ran.stdout).strip().splitlines() or ["no reason given"]
            return f"the peers cannot be installed: {said[-1][:200]}"
    _STAMP.write_text(wanted, encoding="ascii")
    return None


def python() -> Path:
    return _PYTHON


def versions() -> dict[str, str]:
    """What is really in there, asked of the interpreter that runs it."""
    program = (
        "import json, sqlite3, sys; from importlib.metadata import version; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}"
        " | {'SQLite': sqlite3.sqlite_version}))"
    )
    ran = subprocess.run(
        [str(_PYTHON), "-c", program, *SHOWN], capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)
