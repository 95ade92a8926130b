"""What a command did is counted by us; what it claims stands beside it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from tests.agents.world import journal, lifetime, run, shown
from tests.ledger.shell import PROGRAM, Shell


def count(shell: Shell, pattern: str, agent: str = "rio") -> None:
    with (shell.home / "holdfast.toml").open("a") as file:
        file.write(f'\n[agents.{agent}]\nmeasure.sources_archived = "{pattern}"\n')


def measured(shell: Shell) -> Any:
    return journal(shell)[-1]["measured"]["sources_archived"]


MAKE = (
    "import os; [os.makedirs(os.path.dirname(p) or '.', exist_ok=True) or open(p, 'w') for p in {}]"
)


def make(*paths: str) -> str:
    return MAKE.format(list(paths))


def test_new_files_are_counted_and_the_claim_is_kept_apart(shell: Shell) -> None:
    count(shell, "archive/**/*.md")
    (shell.cwd / "archive").mkdir()
    (shell.cwd / "archive/old.md").write_text("x")
    made = ("archive/a.md", "archive/deep/er/b.md", "archive/c.txt", "else/d.md", "archive/old.md")
    claim = "; open(os.environ['HOLDFAST_REPORT'], 'w').write('{\"sources\": 12}')"
    assert run(shell, code=make(*made) + claim).code == 0
    end = journal(shell)[-1]
    assert (end["measured"]["sources_archived"], end["claimed"]["sources_archived"]) == (2, 12)
    session = shown(shell, "session.json")
    assert session["sources_archived"] == lifetime(shell)["sources_archived"] == 2
    assert session["claimed"] == {"sources_archived": 12}


def test_without_a_pattern_nothing_is_measured(shell: Shell) -> None:
    count(shell, "*.md", agent="leo")
    run(shell, code=make("a.md"))
    assert measured(shell) is None
    assert shown(shell, "session.json")["sources_archived"] is None


@pytest.mark.parametrize(
    ("pattern", "made", "found"),
    [
        ("*.md", ["a.md", "b/c.md"], 1),
        ("**/*.md", ["a.md", "b/c.md", "b/d/e.md"], 3),
        ("b/**", ["a.md", "b/c.md", "b/d/e.md"], 2),
        ("?.md", ["a.md", "aa.md"], 1),
        ("[a].md", ["a.md", "[a].md"], 1),
        ("*/x.*", ["b/x.md", "b/c/x.md", "x.md"], 1),
    ],
)
def test_a_pattern_means_what_a_shell_means(
    shell: Shell, pattern: str, made: list[str], found: int
) -> None:
    count(shell, pattern)
    run(shell, code=make(*made))
    assert measured(shell) == found


def test_a_count_never_leaves_the_working_directory(shell: Shell) -> None:
    count(shell, "**/*.md")
    outside = shell.place / "outside"
    outside.mkdir()
    os.symlink(outside, shell.cwd / "link")
    code = make(str(outside / "a.md")) + "; os.symlink('/etc/passwd', 'b.md')"
    assert run(shell, code=code).code == 0
    assert measured(shell) == 0


@pytest.mark.parametrize("pattern", ["../*.md", "/etc/*", "", "a//b"])
def test_a_pattern_that_leads_outside_is_refused_before_the_session(
    shell: Shell, pattern: str
) -> None:
    count(shell, pattern)
    ran = run(shell, code="pass")
    assert ran.code == 3
    assert "sources_archived" in ran.err
    assert journal(shell) == []


def test_a_name_that_is_no_text_is_counted_too(shell: Shell) -> None:
    count(shell, "*.md")
    assert run(shell, code=r"open(b'\xff\xfe.md', 'w')").code == 0
    end = journal(shell)[-1]
    assert (end["outcome"], end["measured"]["sources_archived"]) == ("completed", 1)
    assert end["measured"]["files_touched"] == ["\ufffd\ufffd.md"]


def test_a_copy_with_its_old_time_is_told_and_what_we_write_ourselves_is_not(shell: Shell) -> None:
    home = shell.cwd / "state-home"
    code = "open('new.md', 'w').write('x'); import os; os.utime('new.md', (1e9, 1e9))"
    words = ("--home", str(home), "run", "--agent", "rio", "--", sys.executable, "-c", code)
    assert shell.run([PROGRAM, *words]).code == 0
    ended = json.loads((home / "state/rio/session.json").read_bytes())
    assert ended["measured"]["files_touched"] == ["new.md"]
    assert ended["measured"]["files_touched_count"] == 1


def test_a_rate_of_nothing_is_unknown(shell: Shell) -> None:
    shell("agent", "count", "--agent", "rio", "--source", "ci", "claims_accepted=3")
    assert shown(shell, "metrics.json")["rolling_30d"]["acceptance_rate"] is None
    shell("agent", "count", "--agent", "rio", "--source", "ci", "claims_proposed=4")
    assert shown(shell, "metrics.json")["rolling_30d"]["acceptance_rate"] == 0.75
