"""A program that Holdfast runs is known for one, whatever it does to its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.proc import procfs
from holdfast.proc.limits import Means
from holdfast.proc.membership import all_members, tree_around
from holdfast.proc.tree import Tree
from tests.ledger.shell import Shell

ASKS = (
    "import os; from holdfast.proc.membership import tree_around; print(tree_around(os.getpid()))"
)
LEAVES = f"""
import os, sys
told, tell = os.pipe()
os.set_inheritable(tell, True)
if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork() == 0:
        os.dup2(tell, 1)
        while os.getppid() == parent:
            pass
        os.execve(sys.executable, [sys.executable, "-c", {ASKS!r}], {{}})
    os._exit(0)
os.close(tell)
os.wait()
print(os.read(told, 99).decode())
"""


@pytest.mark.parametrize("how", ["plain", "emptied", "daemon"])
def test_a_program_in_a_tree_is_known_for_one(means: Means, how: str) -> None:
    asks = [sys.executable, "-c", ASKS]
    words = {
        "plain": asks,
        "emptied": ["env", "-i", *asks],
        "daemon": [sys.executable, "-c", LEAVES],
    }[how]
    tree = Tree(words, means=[means])
    ended = tree.run()
    assert ended.exit_code == 0, ended
    assert ended.last_line == tree.mark.id


@pytest.mark.parametrize(
    "words",
    [
        ["budget", "set", "--day", "900"],
        ["memory", "accept", "rio#1", "--agent", "rio"],
        ["job", "steward", "hello", "approve"],
        ["job", "resume", "hello", "--max-cost", "900"],
    ],
)
def test_no_program_makes_a_decision_of_a_person(tmp_path: Path, words: list[str]) -> None:
    shell = Shell(tmp_path)
    assert shell("init", "rio").code == 0
    refused = shell("run", "--agent", "rio", "--", "env", "-i", *map(str, shell.command(words)))
    assert refused.code == 1
    assert "cannot make a person's decision" in refused.err
    assert "cannot make a person's decision" not in shell(*words).err


def test_who_is_in_no_tree_is_told_apart_from_who_is() -> None:
    with Tree(["sleep", "60"]) as tree:
        assert tree.child is not None
        members = all_members(procfs.everything())
        assert tree.child.pid in members
        assert os.getpid() not in members
        assert tree_around(os.getpid()) is None
        tree.stop()
        tree.wait()
    alone = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, check=True)
    assert alone.stdout == "None\n"
