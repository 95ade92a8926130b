"""docs/swarm.md shows what happens: its session and its file are run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.ledger.shell import REPO, Shell

PAGE = (REPO / "docs/swarm.md").read_text(encoding="utf-8")
REPLIES = [
    {"match": "cluster summarizer", "reply": "Water on Monday. Open: the budget."},
    {"match": r"to (\w+)\.", "reply": "{1} would water on Monday and sow on Friday."},
]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    (made.cwd / "replies.json").write_text(json.dumps({"replies": REPLIES}), encoding="utf-8")
    return made


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def figureless(text: str) -> str:
    return re.sub(r"\d+(?:[.,]\d+)*", "N", text)


def test_the_session_happens_like_that(shell: Shell) -> None:
    for step in block("console").split("$ ")[1:]:
        command, _, shown = step.partition("\n")
        command, quiet, _ = command.partition(" > /dev/null")
        ran = shell(*shlex.split(command)[1:])
        assert ran.code == 0, ran.err
        if quiet:
            continue
        # Who is asked and what is said is the same each time; times are not.
        assert figureless(ran.out).splitlines() == figureless(shown).splitlines()


def test_the_file_is_read_without_a_warning_but_the_one_it_names(shell: Shell) -> None:
    assert shell("init", "rio", "kim", "ada", "--timezone", "UTC").code == 0
    (shell.cwd / "swarm.yaml").write_text(block("yaml"), encoding="utf-8")
    words = ("swarm", "run", "--file", "swarm.yaml", "--model", "scripted:echo", "--dry-run")
    ran = shell(*words, "--json")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    spec = json.loads(ran.out)["data"]["spec"]
    assert (spec["ticks"], spec["topk"], spec["summarizer"]) == (20, 2, "ada")
    assert spec["goals"] == {"kim": "Find the well"} and spec["max_cost_usd"] == 2.5
    assert (spec["baton_chars"], spec["baton_sentences"], spec["timeout"]) == (2000, 5, 120.0)


def test_every_flag_of_a_run_is_a_key_of_the_file_or_said_on_the_page(shell: Shell) -> None:
    flags = re.findall(r"^  --([a-z-]+)", shell("swarm", "run", "--help").out, re.MULTILINE)
    keys = block("yaml")
    said = [each for each in flags if f"--{each}" in PAGE or each.replace("-", "_") in keys]
    unsaid = {*flags} - {*said} - {"help", "home", "json", "layout"}
    assert not unsaid
