"""`init`: what an agent begins with, made once and never overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.agents.lifecycle import bootstrap
from holdfast.store.home import Home
from tests.ledger.shell import Shell, Verbs, on_its_own

ENTRIES = {
    "report.json",
    "tasks.json",
    "session.json",
    "memory.md",
    "inbox",
    "journal.jsonl",
    "metrics.json",
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def verbs(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    return Verbs(home.path, home.clock)


def everything(top: Path) -> dict[str, tuple[bytes, int]]:
    files = [file for file in top.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_an_empty_place_gets_seven_entries_for_each_agent_and_again_nothing(shell: Shell) -> None:
    assert shell("init", "rio", "clay", "--timezone", "UTC").code == 0
    for name in ("rio", "clay"):
        folder = shell.home / "state" / name
        assert {each.name for each in folder.iterdir()} >= ENTRIES
        for file in folder.glob("*.json"):
            assert isinstance(json.loads(file.read_bytes()), dict), file
        assert (folder / "inbox").is_dir()
        assert (folder / "journal.jsonl").read_bytes() == b""
        session = json.loads((folder / "session.json").read_bytes())
        told = {"schema_version", "agent", "errors"}
        assert {value for key, value in session.items() if key not in told} == {None}
    before = everything(shell.home)
    again = shell("init", "rio", "clay")
    assert (again.code, everything(shell.home)) == (0, before)
    assert "already there: rio, clay" in again.out


def test_every_json_file_that_is_made_is_without_error_or_warning(shell: Shell) -> None:
    shell("init", "rio", "Clay")
    files = [str(file) for file in (shell.home / "state").rglob("*.json")]
    files += [str(file) for file in (shell.home / "state").rglob("memory.md")]
    ran = shell("validate", "--json", *files)
    answer = json.loads(ran.out)
    assert (ran.code, answer["rows"]) == (0, [])
    assert answer["counts"]["files"] == len(files) == 13


def test_the_notes_have_their_title_and_five_headings(shell: Shell) -> None:
    shell("init", "rio")
    assert (shell.home / "state/rio/memory.md").read_text("utf-8").splitlines() == [
        "# Rio — Operational Memory",
        "",
        "## Cross-Session Patterns",
        "",
        "## Dead Ends (don't re-investigate)",
        "",
        "## Open Questions",
        "",
        "## Corrections",
        "",
        "## Cross-Agent Flags Received",
    ]


@pytest.mark.parametrize("name", sorted(ENTRIES - {"inbox"}))
def test_one_that_is_missing_is_made_and_named_and_the_others_stay(shell: Shell, name: str) -> None:
    shell("init", "rio")
    folder = shell.home / "state/rio"
    before = {each: everything(folder)[each] for each in everything(folder) if name not in each}
    (folder / name).unlink()
    planned = shell("init", "rio", "--dry-run")
    assert f"would add to rio: {name}" in planned.out
    assert not (folder / name).exists()
    ran = shell("init", "rio", "--json")
    assert json.loads(ran.out)["data"]["added"] == {"rio": [name]}
    assert (folder / name).exists()
    after = everything(folder)
    assert {each: after[each] for each in before} == before


@pytest.mark.parametrize("name", sorted(ENTRIES - {"inbox"}))
def test_a_file_that_is_there_is_never_overwritten_whatever_it_holds(
    shell: Shell, name: str
) -> None:
    folder = shell.home / "state/rio"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"mine, and no JSON")
    assert shell("init", "rio").code == 0
    assert (folder / name).read_bytes() == b"mine, and no JSON"
    assert {each.name for each in folder.iterdir()} >= ENTRIES


def test_a_journal_that_never_had_a_line_is_as_it_should_be(shell: Shell) -> None:
    shell("init", "rio")
    assert shell("check").code == 0
    assert shell("doctor").code == 0


def test_a_journal_that_was_emptied_is_told_from_one_that_never_had_a_line(shell: Shell) -> None:
    shell("init", "rio")
    shell("session", "start", "--agent", "rio")
    assert shell("check").code == 0
    os.truncate(shell.home / "state/rio/journal.jsonl", 0)
    ran = shell("check", "--json")
    assert ran.code == 6
    kinds = {row["kind"] for row in ran.rows() if row["key"] == "state/rio/journal.jsonl"}
    assert kinds == {"empty", "cut"}
    assert "journal: lines lost" in shell("status", "rio").out


def test_an_empty_journal_of_which_nothing_is_known_is_reported(shell: Shell) -> None:
    shell("init", "rio")
    for stamp in (shell.home / "state/rio").glob(".*.view"):
        stamp.unlink()
    assert shell("check").code == 6


def test_the_first_session_begins_in_the_empty_journal(home: Home) -> None:
    with Agent(home, "rio") as rio:
        bootstrap(home, rio, "rio")
        before = rio.report()
        rio.start(Start("research"))
        assert (before["status"], rio.report()["status"]) == ("idle", "researching")
    assert not list(Path(home.path, "state/rio").glob("*.edited-*"))
    found = home.log("state/rio/journal.jsonl").verify()
    assert (found.problems, found.bad) == ([], [])


def test_the_views_of_a_new_agent_are_made_again_as_they_were(verbs: Verbs) -> None:
    verbs("init", agent=["rio"])
    folder = Path(verbs.path, "state/rio")
    names = ("report.json", "session.json", "metrics.json")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
        (folder / f".{name}.view").unlink()
    verbs.clock.sleep(5000)
    verbs("init", agent=["rio"])
    assert {name: (folder / name).read_bytes() for name in names} == before


def test_reports_of_another_system_stay_theirs(shell: Shell) -> None:
    folder = shell.home / "rio"
    folder.mkdir(parents=True)
    report = b'{"agent": "rio", "updated_at": "2026-03-31T22:00:00Z", "status": "idle"}\n'
    (folder / "report.json").write_bytes(report)
    ran = shell("--layout", "teleo", "init", "rio")
    assert ran.code == 0, ran.err
    assert (folder / "report.json").read_bytes() == report
    assert {each.name for each in folder.iterdir()} >= ENTRIES
    assert shell("rebuild").code == 0
    assert (folder / "report.json").read_bytes() == report


def test_the_index_knows_everybody_and_stays_as_it_is(shell: Shell) -> None:
    assert shell("init", "rio", "Clay").code == 0
    file = shell.home / "state/index.json"
    before = file.read_bytes()
    found = json.loads(before)["agents"]
    assert list(found) == ["clay", "rio"]
    assert found["rio"]["manifest_path"] == "state/rio/manifest.json"
    assert found["rio"]["counters"] == {"memory_lines": 0, "events_lines": 0}
    assert shell("init", "rio", "Clay").code == 0
    assert file.read_bytes() == before
    file.unlink()
    assert shell("rebuild").code == 0
    assert json.loads(file.read_bytes())["agents"] == found
    assert shell("validate", str(file)).out.strip() == ""
