"""The verbs of sessions where something is odd: what they refuse, and what stops none of them."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast.agents
from holdfast.agents import tasks
from holdfast.agents.journal import OWN_EVENTS, SOURCES
from holdfast.errors import BadValue, HoldfastError, UsageError
from holdfast.ids import SessionId
from holdfast.process import this_process
from holdfast.settings import Budget
from holdfast.spend import book
from holdfast.spend.book import Spend
from holdfast.store import edited
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.testing import Turner
from tests.ledger.shell import Shell, Verbs, on_its_own


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", agent=["rio"], timezone="UTC")
    return made


def journal(verbs: Verbs, agent: str = "rio") -> list[dict[str, Any]]:
    file = Path(verbs.path, "state", agent, "journal.jsonl")
    return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


# --- a start that fails ---------------------------------------------------------------------


def test_a_start_that_fails_leaves_no_session_under_way(verbs: Verbs) -> None:
    blocked = Path(verbs.path, "cache", "sessions")
    blocked.parent.mkdir(exist_ok=True)
    blocked.touch()
    with pytest.raises(HoldfastError):
        verbs("session start", agent="rio")
    blocked.unlink()
    assert verbs("session start", agent="rio").applied
    first, second = verbs.rows("session list")
    assert (first["status"], first["cause"], second["status"]) == ("error", "wrapper", "running")


# --- one odd agent --------------------------------------------------------------------------


def broken_journal(verbs: Verbs, agent: str) -> None:
    """Somebody put a directory in its place."""
    file = Path(verbs.path, "state", agent, "journal.jsonl")
    file.unlink(missing_ok=True)
    file.mkdir(parents=True)


def test_a_folder_with_notes_alone_stops_no_verb_of_the_fleet(verbs: Verbs) -> None:
    verbs("session start", agent="rio")
    notes = Path(verbs.path, "state", "alf", "memory.md")
    notes.parent.mkdir()
    notes.write_text("# Notes\n", encoding="utf-8")
    assert [row["agent"] for row in verbs.rows("session list")] == ["rio"]
    assert verbs("session sweep").exit_code == 0
    assert verbs.warnings == []


@pytest.mark.parametrize("verb", ["session list", "session sweep"])
def test_an_agent_that_cannot_be_read_is_told_and_stops_nobody(
    verbs: Verbs, clock: Turner, verb: str
) -> None:
    for agent in ("ann", "rio"):
        verbs("session start", agent=agent, timeout="1m")
    broken_journal(verbs, "ann")
    clock.advance(600)
    found = verbs(verb)
    assert [row["agent"] for row in found.rows] == ["rio"]
    assert found.exit_code == 1
    (warning,) = verbs.warnings
    assert warning.startswith("ann: ")
    with pytest.raises(HoldfastError):
        verbs(verb, agent="ann")


def test_a_broken_agent_keeps_no_other_from_its_money(verbs: Verbs) -> None:
    with Path(verbs.path, "holdfast.toml").open("a", encoding="utf-8") as settings:
        settings.write("[budget]\nfleet_day_usd = 5\n")
    with Home.open(verbs.path, clock=verbs.clock) as home, Spend(home) as money:
        lost = SessionId(home.day(), "ann", 1)
        gone = this_process()._replace(started=1)
        money.reserve(lost, 2.0, Budget(fleet_day=5.0), gone)
    broken_journal(verbs, "ann")
    assert verbs("session start", agent="rio", max_cost=1.0).applied
    with Home.open(verbs.path, clock=verbs.clock) as home, Spend(home) as money:
        assert [held.session.agent for held in money.open()] == ["ann", "rio"]
        (told,) = home.log("audit").read()
        assert isinstance(told, Line)
        assert told.record["event"] == "reservation_kept"


def test_fewer_sessions_than_none_are_not_to_be_listed(verbs: Verbs) -> None:
    with pytest.raises(UsageError):
        verbs("session list", limit=-1)


# --- what only we write ---------------------------------------------------------------------


@pytest.mark.parametrize("event", [*sorted(OWN_EVENTS), "", " "])
def test_nobody_notes_what_only_we_write(verbs: Verbs, event: str) -> None:
    with pytest.raises(UsageError):
        verbs("session note", agent="rio", event=event, text="so there")
    assert journal(verbs) == []


@pytest.mark.parametrize("count", ["-1", "1e300", '"7"', "true", "99999999999999999999"])
def test_sources_that_cannot_be_are_not_counted(verbs: Verbs, count: str) -> None:
    verbs("session start", agent="rio")
    with pytest.raises(BadValue):
        verbs("session note", agent="rio", event=SOURCES, data=f'{{"count": {count}}}')
    verbs("session note", agent="rio", event=SOURCES, data='{"count": 3}')
    (row,) = verbs.rows("session list")
    assert row["sources_archived"] == 3


def test_every_word_that_is_read_or_written_by_us_is_ours() -> None:
    of_other_logs = {"alerts", "findable"}
    found = {step.event for step in tasks.STEPS.values()} | {tasks.PARKED, edited.BY_HAND}
    for file in Path(holdfast.agents.__path__[0]).glob("*.py"):
        if file.stem not in of_other_logs:
            found |= set(words_of(importlib.import_module(f"holdfast.agents.{file.stem}")))
    into_the_book = {"settle", "correct"}
    found |= set(words_of(book, only="settled")) - into_the_book
    assert {"retired", "import", "task_added", "session_end"} <= found, "it is found at all"
    assert found - OWN_EVENTS == {SOURCES}


def words_of(module: ModuleType, only: str | None = None) -> Iterator[str]:
    """What a module compares the event of a line with, or writes as one."""
    assert module.__file__ is not None
    tree: ast.AST = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    if only is not None:
        defined = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))
        tree = next(each for each in defined if each.name == only)
    for node in ast.walk(tree):
        for value in said_of_events(node):
            named = getattr(module, value.id, None) if isinstance(value, ast.Name) else None
            text = value.value if isinstance(value, ast.Constant) else named
            if isinstance(text, str):
                yield text


def said_of_events(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Match(subject, cases) if is_event(subject):
            inside = (each for case in cases for each in ast.walk(case.pattern))
            yield from (each.value for each in inside if isinstance(each, ast.MatchValue))
        case ast.Compare(left, _, others) if is_event(left):
            yield from others
        case ast.Dict(keys, values):
            both = zip(keys, values, strict=True)
            yield from (value for key, value in both if key is not None and is_word(key))
        case _:
            pass


def is_event(node: ast.expr) -> bool:
    match node:
        case ast.Name("event"):
            return True
        case ast.Call(ast.Attribute(attr="get"), [word]) | ast.Subscript(slice=word):
            return is_word(word)
        case _:
            return False


def is_word(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "event"


def test_who_notes_outside_of_a_session_is_told(verbs: Verbs) -> None:
    verbs("session start", agent="rio")
    verbs("session note", agent="rio", event="finding", text="within")
    assert verbs.warnings == []
    verbs("session end", agent="rio", outcome="completed")
    verbs("session note", agent="rio", event="finding", text="late")
    assert verbs.warnings == ["rio has no open session: this belongs to none"]


def test_a_note_changes_no_document(shell: Shell) -> None:
    shell("init", "rio")
    shell("session", "start", "--agent", "rio")
    memory = shell.home / "state/rio/memory.md"
    before = memory.read_bytes()
    patch = {"file": "state/rio/memory.md", "new": "x", "patch": [[0, ["# a"], ["HACKED"]]]}
    words = ("session", "note", "--agent", "rio", "--event", "finding", "--data")
    ran = shell(*words, json.dumps(patch), "hi")
    assert ran.code == 2
    assert "'patch' is set by the journal" in ran.err
    shell("memory", "show", "--agent", "rio")
    assert memory.read_bytes() == before
