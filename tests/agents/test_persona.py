"""Who an agent is, and how that is said, changed, copied and ended."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.agent import Agent, Start
from holdfast.agents.persona import checked, from_text, library
from holdfast.calls.conversation import Conversation
from holdfast.codec import Record
from holdfast.errors import BadValue, Corrupt, NotFound, Retired, UsageError
from holdfast.store.home import Home
from holdfast.store.vfs import RealVfs
from holdfast.testing import Turner
from tests.ledger.shell import PATIENCE, PROGRAM, Shell, Verbs, on_its_own

YSON = """\
#@creator: Bo
#@tags: calm, exact
# a persona as people write it
id: Lila-v∞
identity:
  roles: [reviewer, archivist]
core_directives: Say what you do not know
model: ollama:llama3.1
goals:
  - Find what is missing
"""


@pytest.fixture
def verbs(tmp_path: Path, clock: Turner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verbs]:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(str(tmp_path / "home"), clock)
    made("init", agent=["rio"], timezone="UTC")
    yield made


def state(place: Verbs | Shell, agent: str, name: str) -> str:
    home = place.path if isinstance(place, Verbs) else place.home
    return (Path(home) / "state" / agent / name).read_text(encoding="utf-8")


def lines(place: Verbs | Shell, agent: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in state(place, agent, name).splitlines()]


def manifest(place: Verbs | Shell, agent: str) -> dict[str, Any]:
    return json.loads(state(place, agent, "manifest.json"))


def persona_lines(place: Verbs, agent: str) -> list[str]:
    found = lines(place, agent, "journal.jsonl")
    return [each["event"] for each in found if each.get("file", "").endswith("manifest.json")]


def bytes_below(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def said(place: Verbs, agent: str) -> list[str]:
    """The questions that a model would be told when this agent is asked next."""
    with (
        Home.open(place.path, clock=place.clock) as home,
        Agent(home, agent) as one,
        Conversation(home, one.key) as found,
    ):
        return [each.text for each in found.recent(100_000) if each.role == "user"]


def ask(verbs: Verbs, agent: str, text: str) -> None:
    verbs("agent chat", agent=agent, text=text, model="scripted:echo")


# --- new ------------------------------------------------------------------------------------


def test_a_persona_comes_from_yaml_with_the_names_that_others_use(shell: Shell) -> None:
    (shell.cwd / "lila.yson").write_text(YSON, encoding="utf-8")
    assert shell("agent", "new", "lila", "--from", "lila.yson").code == 0
    found = manifest(shell, "lila")
    assert found.pop("created_at")
    assert found == {
        "agent_id": "lila",
        "creator": "Bo",
        "roles": ["reviewer", "archivist"],
        "core_directives": ["Say what you do not know"],
        "goals": {"local": ["Find what is missing"]},
        "persona_tags": ["calm", "exact"],
        "runtime": {"model": "ollama:llama3.1"},
        "display_name": "Lila-v∞",
    }
    shown = shell("agent", "show", "lila", "--json").json()["data"]
    assert shown["persona"]["roles"] == ["reviewer", "archivist"]
    assert shown["lineage"] == {"parent": None, "ancestors": [], "children": []}
    checked = shell("validate", str(shell.home / "state/lila"), "--json").json()
    assert (checked["counts"]["errors"], checked["counts"]["warnings"]) == (0, 0)
    assert shell("check").code == 0


def test_a_persona_comes_from_json_on_standard_input_and_flags_hold(shell: Shell) -> None:
    given = {"agent_id": "Ada", "roles": ["cook"], "mood": "sunny", "parent_id": "elsewhere"}
    words = ("agent", "new", "Ada", "--from", "-", "--role", "reviewer", "--json")
    made = shell(*words, said=json.dumps(given).encode())
    assert made.json()["data"]["roles"] == ["reviewer"]
    assert "mood" in made.err  # kept, and said to be unknown
    assert manifest(shell, "ada")["agent_id"] == "Ada"
    assert "parent_id" not in manifest(shell, "ada")


def test_what_the_agent_is_for_is_told_to_its_model_and_to_its_topics(verbs: Verbs) -> None:
    verbs("agent new", agent="ada", goal=["No flaky test", "Be kind"], role=["reviewer"])
    ask(verbs, "ada", "Hello")
    system = next(each for each in lines(verbs, "ada", "memory.jsonl") if each["role"] == "system")
    assert system["content"] == (
        "You are ada.\nYour roles: reviewer.\nYour goals:\n- No flaky test\n- Be kind"
    )
    verbs("agent edit", agent="ada", goal=["Be kind"])
    verbs("agent edit", agent="ada", role=["cook"])
    verbs("session sweep")
    told = [each for each in lines(verbs, "ada", "topics.jsonl") if each["topic"] == "goals/ada"]
    assert [each["text"] for each in told] == ["No flaky test\nBe kind", "Be kind"]


@pytest.mark.parametrize(
    "text",
    [
        '{"roles": "x", "core_directives": 7}',
        "[1, 2]",
        "roles: [a",
        '{"runtime": {"temperature": "hot"}}',
        '{"notes": [{"note": 1}]}',
        '{"model": "gpt", "runtime": "fast"}',
    ],
)
def test_what_is_no_persona_is_refused_and_nothing_is_made(
    verbs: Verbs, tmp_path: Path, text: str
) -> None:
    (tmp_path / "p").write_text(text, encoding="utf-8")
    with pytest.raises(BadValue):
        verbs("agent new", agent="ada", from_=str(tmp_path / "p"))
    assert not (tmp_path / "home/state/ada").exists()


@pytest.mark.parametrize("name", ["rio", "RIO", "../x", "a.b", ""])
def test_a_name_that_is_taken_or_no_name_is_refused(verbs: Verbs, name: str) -> None:
    before = bytes_below(Path(verbs.path))
    with pytest.raises(UsageError):
        verbs("agent new", agent=name, role=["x"])
    assert bytes_below(Path(verbs.path)) == before


def test_of_two_who_make_an_agent_at_once_one_is_told_that_it_is_there(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(persona: Record) -> list[str]:
        monkeypatch.undo()
        verbs("agent new", agent="par", role=["first"])
        return []

    monkeypatch.setattr("holdfast.ops.agent.checked", meanwhile)
    with pytest.raises(UsageError, match="already exists"):
        verbs("agent new", agent="par", role=["second"])
    assert manifest(verbs, "par")["roles"] == ["first"]


def test_an_agent_whose_maker_died_after_its_manifest_is_ended_as_the_hint_says(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.ops.agent.bootstrap", killed)
        with pytest.raises(KeyboardInterrupt):
            verbs("agent new", agent="par", role=["first"])
    with pytest.raises(UsageError) as caught:
        verbs("agent new", agent="par", role=["first"])
    assert "`holdfast init par`" in caught.value.hint
    verbs("init", agent=["par"])
    assert (Path(verbs.path) / "state/par/memory.md").exists()
    assert manifest(verbs, "par")["roles"] == ["first"]


def test_a_dry_run_shows_the_persona_and_changes_no_byte(verbs: Verbs) -> None:
    before = bytes_below(Path(verbs.path))
    assert verbs("agent new", agent="ada", role=["x"], dry_run=True).data["roles"] == ["x"]
    edited = verbs("agent edit", agent="rio", role=["x"], dry_run=True)
    assert edited.data["after"] == {"roles": ["x"]}
    verbs("agent fork", old="rio", new="ada", dry_run=True)
    assert not verbs("agent retire", agent="rio", dry_run=True).applied
    assert bytes_below(Path(verbs.path)) == before


def test_a_secret_in_a_persona_reaches_neither_manifest_nor_journal(verbs: Verbs) -> None:
    verbs("agent new", agent="ada", description="My password: hunter2-and-more-of-it")
    patch = '{"runtime": {"api_key": "k-29384729384729384"}}'
    verbs("agent edit", agent="ada", patch=patch)
    everything = b"".join(bytes_below(Path(verbs.path)).values())
    assert b"hunter2" not in everything
    assert b"k-29384729384729384" not in everything


def test_an_agent_whose_maker_died_before_its_manifest_is_made_by_saying_it_again(
    verbs: Verbs,
) -> None:
    verbs("agent new", agent="ada", role=["reviewer"])
    (Path(verbs.path) / "state/ada/manifest.json").unlink()
    verbs("init", agent=["ada"])
    assert manifest(verbs, "ada")["roles"] == ["reviewer"]


@pytest.mark.parametrize("text", ['{"agent_id": "rio", ', ""])
def test_a_manifest_that_cannot_be_read_is_told_and_never_overwritten(
    verbs: Verbs, text: str
) -> None:
    path = Path(verbs.path) / "state/rio/manifest.json"
    path.write_text(text, encoding="utf-8")
    assert verbs("agent show", agent="rio").data["persona"] is None
    assert "cannot be read" in verbs.warnings[0]
    with pytest.raises(Corrupt, match="cannot be read"):
        verbs("agent edit", agent="rio", role=["x"])
    assert path.read_text(encoding="utf-8") == text


# --- edit -----------------------------------------------------------------------------------


def test_every_change_is_a_line_of_the_journal_also_one_by_hand(verbs: Verbs) -> None:
    verbs("agent new", agent="ada", role=["reviewer"])
    done = verbs("agent edit", agent="ada", patch='{"roles": null, "description": "Calm."}')
    assert done.data["changed"] == ["roles", "description"]
    assert "roles" not in manifest(verbs, "ada")
    path = Path(verbs.path) / "state/ada/manifest.json"
    path.write_text(path.read_text(encoding="utf-8").replace("Calm", "Keen"), encoding="utf-8")
    assert verbs("agent edit", agent="ada", tag=["x"]).data["changed"] == ["persona_tags"]
    found = manifest(verbs, "ada")
    assert (found["description"], found["persona_tags"]) == ("Keen.", ["x"])
    events = persona_lines(verbs, "ada")
    assert events == ["persona_changed", "persona_changed", "edited_by_hand", "persona_changed"]
    again = verbs("agent edit", agent="ada", tag=["x"])
    assert not again.applied
    assert persona_lines(verbs, "ada") == events


@pytest.mark.parametrize("patch", ['{"agent_id": "eve"}', '{"ancestry": {"parent_id": "x"}}'])
def test_by_what_others_know_an_agent_stays(verbs: Verbs, patch: str) -> None:
    with pytest.raises(BadValue, match="stays as it is"):
        verbs("agent edit", agent="rio", patch=patch)


def test_without_fields_and_a_terminal_there_is_nothing_to_change(shell: Shell) -> None:
    assert shell("agent", "edit", "rio", "--json").error()["code"] == "usage"
    assert shell("agent", "edit", "nobody", "--role", "x", "--json").code == 4


def test_at_a_terminal_the_manifest_is_opened_in_an_editor(shell: Shell) -> None:
    shell("agent", "edit", "rio", "--role", "cook")
    editor = shell.cwd / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i s/cook/baker/ "$1"\n', encoding="utf-8")
    editor.chmod(0o755)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "--home", str(shell.home), "agent", "edit", "rio"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "dumb", "VISUAL": str(editor)},
    )
    os.close(theirs)
    assert process.wait(PATIENCE) == 0, os.read(ours, 4096)
    assert b"changed roles" in os.read(ours, 4096)
    os.close(ours)
    assert manifest(shell, "rio")["roles"] == ["baker"]


# --- fork -----------------------------------------------------------------------------------


def test_a_fork_knows_what_its_parent_knew_and_goes_its_own_way(verbs: Verbs) -> None:
    verbs("agent edit", agent="rio", role=["reviewer"], goal=["Look closely"])
    ask(verbs, "rio", "My name is Bo")
    verbs("memory note", agent="rio", section="Dead Ends", text="The fee page is empty")
    verbs("agent fork", old="rio", new="Ada", note="a second opinion")
    ask(verbs, "rio", "only the parent hears this")
    ask(verbs, "ada", "only the child hears this")
    assert said(verbs, "rio") == ["My name is Bo", "only the parent hears this"]
    assert said(verbs, "ada") == ["My name is Bo", "only the child hears this"]
    verbs("memory note", agent="rio", section="Dead Ends", text="Nor is the other")
    notes = state(verbs, "ada", "memory.md")
    assert notes.startswith("# Ada — ")
    assert "The fee page is empty" in notes
    assert "Nor is the other" not in notes
    assert manifest(verbs, "ada")["roles"] == ["reviewer"]
    reach = lines(verbs, "ada", "topics.jsonl")[0]["meta"]["forked_from"]
    assert lines(verbs, "rio", "topics.jsonl")[reach["seq"] - 1]["hash"] == reach["hash"]


def test_a_fork_is_on_record_on_both_sides(verbs: Verbs) -> None:
    verbs("agent fork", old="rio", new="ada", note="a second opinion")
    verbs("agent fork", old="ada", new="eve")
    (event,) = lines(verbs, "rio", "events.jsonl")
    assert event["type"] == "fork"
    assert event["meta"] == {"child_id": "ada", "note": "a second opinion"}
    child = manifest(verbs, "ada")
    assert child["ancestry"] == {"parent_id": "rio"}
    assert [each["note"] for each in child["notes"]] == ["a second opinion"]
    index = json.loads((Path(verbs.path) / "state/index.json").read_bytes())
    assert index["agents"]["eve"]["parent_id"] == "ada"
    shown = verbs("agent show", agent="ada").data["lineage"]
    assert shown == {"parent": "rio", "ancestors": ["rio"], "children": ["eve"]}
    assert verbs("agent show", agent="eve").data["lineage"]["ancestors"] == ["ada", "rio"]
    assert verbs.rows("check") == []
    assert verbs("validate", path=[verbs.path]).counts["errors"] == 0


def test_a_fork_of_a_long_conversation_takes_hardly_any_room(verbs: Verbs) -> None:
    for number in range(3):
        ask(verbs, "rio", f"{number} " + "very long " * 20_000)
    parent = sum(map(len, bytes_below(Path(verbs.path) / "state/rio").values()))
    verbs("agent fork", old="rio", new="ada")
    child = sum(map(len, bytes_below(Path(verbs.path) / "state/ada").values()))
    assert parent > 1_000_000
    assert child < 50_000


def test_a_fork_knows_what_was_sealed_and_keeps_it_sealed(verbs: Verbs) -> None:
    verbs("key new")
    verbs("agent chat", agent="rio", text="Zebulon", model="scripted:echo", sensitive=True)
    verbs("agent fork", old="rio", new="ada")
    ask(verbs, "ada", "Who am I?")
    assert said(verbs, "ada") == ["Zebulon", "Who am I?"]
    assert b"Zebulon" not in b"".join(bytes_below(Path(verbs.path)).values())


@pytest.mark.parametrize("name", ["rio", "Rio", "ada", "ADA"])
def test_an_id_that_is_there_is_refused_and_left_as_it_is(verbs: Verbs, name: str) -> None:
    verbs("agent new", agent="ada", role=["cook"])
    before = bytes_below(Path(verbs.path))
    for dry_run in (True, False):
        with pytest.raises(UsageError):
            verbs("agent fork", old="rio", new=name, dry_run=dry_run)
    assert bytes_below(Path(verbs.path)) == before


def test_a_fork_that_was_broken_off_is_ended_by_forking_again(verbs: Verbs) -> None:
    ask(verbs, "rio", "My name is Bo")
    verbs("agent fork", old="rio", new="ada")
    whole = lines(verbs, "ada", "memory.jsonl")
    folder = Path(verbs.path) / "state"
    # As if its maker had died after the first line.
    journal = state(verbs, "ada", "journal.jsonl").splitlines(keepends=True)
    for path in [*(folder / "ada").rglob("*"), *(folder / "rio").glob("*events*")]:
        if path.is_file():
            path.unlink()
    for path in (Path(verbs.path) / "cache").rglob("*ada*"):
        if path.is_file():
            path.unlink()
    (folder / "ada/journal.jsonl").write_text(journal[0], encoding="utf-8")
    verbs("agent fork", old="rio", new="ada")
    assert said(verbs, "ada") == ["My name is Bo"]
    assert lines(verbs, "ada", "memory.jsonl") == whole
    assert [each["meta"]["child_id"] for each in lines(verbs, "rio", "events.jsonl")] == ["ada"]
    with pytest.raises(UsageError):
        verbs("agent fork", old="rio", new="ada")


class Died(BaseException):
    """As if the process had been killed."""


def test_a_fork_whose_maker_dies_at_any_write_is_whole_after_forking_again(
    verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(verbs, "rio", "My name is Bo")
    real, died, nth = RealVfs.sync, True, 0
    while died:
        nth, calls = nth + 1, 0
        mine = Verbs(str(tmp_path / f"copy-{nth}"), verbs.clock)
        shutil.copytree(verbs.path, mine.path)

        def sync(fd: int, last: int = nth) -> None:
            nonlocal calls
            calls += 1
            if calls == last:
                raise Died
            real(fd)

        with monkeypatch.context() as patched:
            patched.setattr(RealVfs, "sync", staticmethod(sync))
            try:
                mine("agent fork", old="rio", new="ada")
                died = False
            except Died:
                pass
        with suppress(UsageError):  # it may have died after the last step
            mine("agent fork", old="rio", new="ada")
        assert said(mine, "ada") == ["My name is Bo"], nth
        assert manifest(mine, "ada")["ancestry"] == {"parent_id": "rio"}
        assert len(lines(mine, "rio", "events.jsonl")) == 1
        reached = [each for each in lines(mine, "ada", "topics.jsonl") if "meta" in each]
        assert [each["topic"] for each in reached].count("ancestry") == 1
        assert mine.rows("check") == []
    assert nth > 5


def test_a_parent_whose_log_is_another_one_now_is_not_taken_for_it(verbs: Verbs) -> None:
    ask(verbs, "rio", "My name is Bo")
    verbs("agent fork", old="rio", new="ada")
    for path in (Path(verbs.path) / "state/rio").glob("*memory.jsonl*"):
        path.unlink()
    assert said(verbs, "ada") == []
    audit = next((Path(verbs.path) / "audit").glob("*.jsonl")).read_text(encoding="utf-8")
    assert "fork_lost" in audit


@settings(max_examples=6)
@given(st.lists(st.tuples(st.sampled_from(["ask", "fork"]), st.integers(0, 3)), max_size=7))
def test_each_agent_remembers_what_it_heard_and_what_its_ancestors_had_heard_then(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    verbs = Verbs(str(tmp_path_factory.mktemp("forks") / "home"), Turner())
    verbs("init", agent=["a0"], timezone="UTC")
    heard: list[list[str]] = [[]]
    for number, (what, whose) in enumerate(steps):
        at = whose % len(heard)
        if what == "ask":
            ask(verbs, f"a{at}", f"question {number}")
            heard[at].append(f"question {number}")
        else:
            verbs("agent fork", old=f"a{at}", new=f"a{len(heard)}")
            heard.append([*heard[at]])
    assert [said(verbs, f"a{at}") for at in range(len(heard))] == heard


# --- retire ---------------------------------------------------------------------------------


def test_a_retired_agent_begins_no_session_and_keeps_its_files(shell: Shell) -> None:
    shell("agent", "chat", "rio", "Hello", "--model", "scripted:echo")
    assert shell("agent", "retire", "rio", "--reason", "done").code == 0
    refused = shell("run", "--agent", "rio", "--json", "--", "true")
    assert refused.code == 1
    assert refused.error()["code"] == "retired"
    assert "done" in refused.error()["message"]
    assert "--undo" in refused.error()["hint"]
    row = shell("agent", "list", "--json").rows()[0]
    assert (row["agent"], row["health"]) == ("rio", "retired")
    assert shell("status", "--json").rows()[0]["recorded_state"] == "offline"
    assert len(lines(shell, "rio", "memory.jsonl")) == 4
    assert shell("agent", "retire", "rio", "--undo").code == 0
    assert shell("run", "--agent", "rio", "--", "true").code == 0
    assert shell("status", "--json").rows()[0]["recorded_state"] == "idle"


def test_retiring_twice_is_once_and_a_session_under_way_goes_on(verbs: Verbs) -> None:
    verbs("session start", agent="rio")
    assert verbs("agent retire", agent="rio").applied
    assert "goes on to its end" in verbs.warnings[0]
    assert not verbs("agent retire", agent="rio").applied
    verbs("session end", agent="rio", outcome="completed")
    with pytest.raises(Retired):
        verbs("session start", agent="rio")
    with pytest.raises(Retired), Home.open(verbs.path, clock=verbs.clock) as home:
        Agent(home, "rio").start(Start("research", "writer"))
    with pytest.raises(Retired):
        ask(verbs, "rio", "Hello?")
    shown = verbs("agent show", agent="rio").data
    assert shown["retired"]["reason"] is None
    assert verbs("agent retire", agent="rio", undo=True).applied
    assert not verbs("agent retire", agent="rio", undo=True).applied
    verbs("session start", agent="rio")


# --- ready-made -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", library())
def test_a_ready_made_persona_is_a_manifest_without_a_warning(name: str) -> None:
    made = from_text(library()[name], "ada", name)
    assert checked({**made, "created_at": "2026-11-19T08:00:00Z"}) == []
    assert set(made) == {"agent_id", "description", "roles", "core_directives", "persona_tags"}
    assert 4 <= len(made["core_directives"]) <= 6
    assert all(isinstance(line, str) and len(line) < 120 for line in made["core_directives"])


def test_an_agent_begins_as_a_ready_made_persona_and_keeps_its_own_name(verbs: Verbs) -> None:
    verbs("agent new", agent="ada", persona="critic", goal=["Find the hole"])
    made = manifest(verbs, "ada")
    assert made["roles"] == ["critic", "sceptic"]
    assert made["goals"] == {"local": ["Find the hole"]}
    assert "display_name" not in made
    (row,) = [row for row in verbs("agent personas").rows if row["persona"] == "critic"]
    assert row["description"] == made["description"]


def test_a_persona_that_is_not_there_makes_no_agent(verbs: Verbs) -> None:
    with pytest.raises(NotFound, match="no such persona: critik"):
        verbs("agent new", agent="ada", persona="critik")
    with pytest.raises(UsageError, match="both"):
        verbs("agent new", agent="ada", persona="critic", from_="x.yaml")
    assert not (Path(verbs.path) / "state" / "ada").exists()


def test_the_file_of_a_persona_makes_the_same_agent(verbs: Verbs, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(verbs("agent personas", persona="planner").text, encoding="utf-8")
    verbs("agent new", agent="ada", from_=str(path))
    verbs("agent new", agent="ben", persona="planner")
    of_ada, of_ben = (
        {name: value for name, value in manifest(verbs, agent).items() if name != "agent_id"}
        for agent in ("ada", "ben")
    )
    assert of_ada == of_ben
