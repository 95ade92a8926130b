"""Importing Holdfast does nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import holdfast

SCRIPT = """
import json, os, sys, threading
reads = []
class Watched(type(os.environ)):
    def __getitem__(self, name):
        reads.append(name)
        return super().__getitem__(name)
    def __contains__(self, name):
        reads.append(name)
        return super().__contains__(name)
    def __iter__(self):
        reads.append("*")
        return super().__iter__()
env = os.environ
os.environ = Watched(env._data, env.encodekey, env.decodekey, env.encodevalue, env.decodevalue)
opened = []
def hook(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
        opened.append(str(args[0]))
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate"):
        opened.append(event)
    elif event.startswith(("socket.", "subprocess.")):
        opened.append(event)
sys.addaudithook(hook)
sys.dont_write_bytecode = True
import holdfast
print(json.dumps({
    "threads": threading.active_count(),
    "environment": reads,
    "opened": opened,
    "modules": sorted(name for name in sys.modules if name.startswith("holdfast")),
    "version": holdfast.__version__,
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("empty")
    source = str(Path(holdfast.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{SCRIPT}"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout) | {"left": [each.name for each in place.iterdir()]}


def test_importing_starts_no_thread(seen: dict[str, Any]) -> None:
    assert seen["threads"] == 1


def test_importing_reads_no_environment(seen: dict[str, Any]) -> None:
    assert seen["environment"] == []


def test_importing_writes_nothing_and_opens_no_connection(seen: dict[str, Any]) -> None:
    assert seen["opened"] == []
    assert seen["left"] == []


def test_importing_loads_nothing_else_of_holdfast(seen: dict[str, Any]) -> None:
    assert seen["modules"] == ["holdfast"]
    assert seen["version"] == holdfast.__version__


def test_every_dependency_of_the_core_is_imported_by_it() -> None:
    text = Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8")
    modules = {"google-re2": "re2", "pyyaml": "yaml"}
    named = [re.split("[>=]", line)[0] for line in tomllib.loads(text)["project"]["dependencies"]]
    wanted = {modules.get(name, name.replace("-", "_")) for name in named}
    source = Path(holdfast.__file__).parent
    imported = re.compile(r"(?:^\s*(?:from|import) |import_module\(.)(\w+)", re.MULTILINE)
    found = {
        name
        for file in source.rglob("*.py")
        for name in imported.findall(file.read_text(encoding="utf-8"))
    }
    assert wanted - found == set()
