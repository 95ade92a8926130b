"""memory.md: a note is one line in one section, and everything else stays as a person wrote it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.agents.agent import Agent
from holdfast.agents.notes import (
    HEADINGS,
    LARGEST,
    MOST_NOTE,
    Notes,
    added,
    bounded,
    empty,
    heading,
    one_line,
    same_as,
)
from holdfast.contracts import notes as contract
from holdfast.errors import Corrupt, UsageError
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.ledger.shell import Shell

TODAY = "2023-11-14"
DEAD_ENDS = HEADINGS[1]


@pytest.fixture
def rio(home: Home) -> Iterator[Agent]:
    with Agent(home, "rio") as agent:
        yield agent


@pytest.fixture
def notes(rio: Agent) -> Notes:
    return rio.desk.notes


def file_of(path: str) -> Path:
    return Path(path, "state/rio/memory.md")


def write(path: str, text: str) -> None:
    file_of(path).parent.mkdir(parents=True, exist_ok=True)
    file_of(path).write_bytes(text.encode())


def sections(text: str) -> dict[str, list[str]]:
    """The notes of each of the five sections, as the contract reads them."""
    found = contract.parse(text).record
    assert isinstance(found, contract.MemoryNotes)
    by_name: dict[str, list[str]] = {}
    for each in found.sections:
        if each.name:
            by_name.setdefault(each.name, []).extend(note.text for note in each.notes)
    return by_name


# --- where a note goes ----------------------------------------------------------------------


def test_the_first_note_makes_the_whole_file(notes: Notes, path: str) -> None:
    notes.note("dead ends", "The fee page\nis empty")
    text = file_of(path).read_text("utf-8")
    assert text.startswith("# Rio — Operational Memory\n")
    assert list(sections(text)) == list(contract.SECTIONS)
    assert sections(text)["Dead Ends"] == [f"{TODAY}: The fee page is empty"]
    assert [each.level for each in contract.parse(text).findings if each.level == "error"] == []


def test_what_looks_like_a_secret_stays_as_a_person_wrote_it(notes: Notes, path: str) -> None:
    mine = "- `mysql -psecretword db`, then; rule: password=correct-horse is an example\n"
    write(path, f"# Mine\n{mine}")
    notes.note("dead", "x")
    assert file_of(path).read_text("utf-8").startswith(f"# Mine\n{mine}\n## Dead Ends")


def test_what_verbs_add_to_documents_is_masked_and_what_a_person_saved_stays(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "--timezone", "UTC")
    mine, secret = "rule: password=correct-horse", "ghp_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQq7r"
    state = shell.home / "state/rio"
    for name, goals in (("memory.md", f"# Mine\n{mine}\n"), ("manifest.json", "")):
        file = state / name
        text = goals or json.dumps({**json.loads(file.read_bytes()), "description": mine})
        file.write_text(text)
    dropped = {"from": "leo", "to": "rio", "subject": f"s {secret}", "body": f"b {secret}"}
    (state / "inbox/m-1.json").write_text(json.dumps(dropped))
    said = f"x {secret} y"
    for words in (
        ("memory", "note", "--section", "dead", said),
        ("task", "add", "--type", "research", "--context", said, said),
        ("task", "done", "task-001", "--outcome", said, "--follow-up", said),
        ("task", "add", "--type", "research", "b"),
        ("task", "drop", "task-003", "--outcome", said),
        ("agent", "edit", "rio", "--goal", said, "--directive", said),
        ("inbox", "take"),
        ("inbox", "ack", "m-1", "--as-task"),
    ):
        named = () if words[0] == "agent" else ("--agent", "rio")
        ran = shell(*words, *named)
        assert ran.code == 0, (words, ran.err)
    (state / "inbox/.done/m-1.json").unlink()
    holding = [
        str(file)
        for file in shell.home.rglob("*")
        if file.is_file() and secret.encode() in file.read_bytes()
    ]
    assert holding == []
    assert mine in (state / "memory.md").read_text("utf-8")
    assert mine in (state / "manifest.json").read_text("utf-8")
    tasks = json.loads((state / "tasks.json").read_bytes())["tasks"]
    assert len(tasks) == 4
    assert tasks[0]["description"].startswith("x [SECRET:github:")


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("Dead Ends", DEAD_ENDS),
        ("DEAD ENDS (don't re-investigate)", DEAD_ENDS),
        ("dead-ends", DEAD_ENDS),
        ("dead", DEAD_ENDS),
        ("flags", "Cross-Agent Flags Received"),
        ("cross agent flags received", "Cross-Agent Flags Received"),
        ("patterns", "Cross-Session Patterns"),
        ("Open Questions", "Open Questions"),
        ("corr", "Corrections"),
    ],
)
def test_a_section_may_be_spelled_as_people_do(spelling: str, meant: str) -> None:
    assert heading(spelling) == meant


@pytest.mark.parametrize(
    "spelling", ["", "cross", "x", "nothing", "o", "../x", "## Dead Ends?!\n#"]
)
def test_a_spelling_that_means_none_or_several_is_refused_with_the_names(spelling: str) -> None:
    if spelling.startswith("##"):
        assert heading(spelling) == DEAD_ENDS
        return
    with pytest.raises(UsageError) as refused:
        heading(spelling)
    assert '"Open Questions"' in str(refused.value.hint)


def test_the_headings_are_those_of_the_contract() -> None:
    assert [contract.section_called(each) for each in HEADINGS] == list(contract.SECTIONS)


def test_the_same_note_is_there_once(notes: Notes, path: str, clock: Turner) -> None:
    assert notes.note("dead ends", "The fee page is empty").applied
    before = file_of(path).read_bytes()
    clock.advance(3 * 86_400)
    assert not notes.note("dead ends", "  the FEE page   is empty.").applied
    assert file_of(path).read_bytes() == before
    assert notes.note("corrections", "The fee page is empty").applied


def test_what_a_person_wrote_counts_as_known() -> None:
    theirs = "## Dead Ends\n* Fee page (2023-10-01): empty\n"
    assert added(theirs, DEAD_ENDS, f"{TODAY}: fee page : empty") == theirs
    assert same_as("Met on 2023-10-01 here") != same_as("Met on 2023-10-02 here")


# --- everything else stays ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("## Dead Ends\n- a\n\n## Other\nx", "## Dead Ends\n- a\n- N\n\n## Other\nx"),
        ("## Dead Ends\n\n## Other\n", "## Dead Ends\n- N\n\n## Other\n"),
        ("## Dead Ends", "## Dead Ends\n- N\n"),
        ("## Dead Ends\n- a", "## Dead Ends\n- a\n- N\n"),
        ("T\r\n## Dead Ends\r\n- a\r\n", "T\r\n## Dead Ends\r\n- a\r\n- N\r\n"),
        ("T\n## Dead Ends\n- a\n## Mine\r\n", "T\n## Dead Ends\n- a\n- N\n## Mine\r\n"),
        ("no heading", "no heading\n\n## Dead Ends (don't re-investigate)\n- N\n"),
        ("", "## Dead Ends (don't re-investigate)\n- N\n"),
        (
            "```\n## Dead Ends\n```\n## dead ends (old)\n",
            "```\n## Dead Ends\n```\n## dead ends (old)\n- N\n",
        ),
        ("## Dead Ends\n```\n- a\n", "## Dead Ends\n```\n- a\n- N\n"),
        ("## Dead Ends\n- a\n## Dead Ends\n- b\n", "## Dead Ends\n- a\n- N\n## Dead Ends\n- b\n"),
    ],
)
def test_one_line_is_added_and_nothing_else_changes(text: str, wanted: str) -> None:
    assert added(text, DEAD_ENDS, "N") == wanted


PIECES = st.sampled_from(
    [
        "# Rio\n", "## Dead Ends\n", "## Corrections\r\n", "## Mine\n", "- a\n", "* b\r\n",
        "text", "\n", "```\n", "~~~~\n", "  - c\n", "\x0c", "## ", "é\u2028\n", "> q\n", "\ufeff",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=12).map("".join)
NOTES = st.text(max_size=40).map(one_line).filter(bool)


@given(TEXTS, st.sampled_from(HEADINGS), NOTES)
def test_of_any_text_only_the_new_line_is_new(text: str, name: str, note: str) -> None:
    line = f"{TODAY}: {note}"
    after = added(text, name, line)
    if after == text:
        return
    at = after.index(f"- {line}")
    rest = after[at + len(line) + 2 :].removeprefix("\r").removeprefix("\n")
    assert text.endswith(rest)
    kept = text[: len(text) - len(rest)]
    assert after.startswith(kept)
    between = after[len(kept) : at].replace(f"## {name}", "")
    assert not between.strip("\r\n")
    # It stands in its section, and saying it again adds nothing.
    assert any(line in each for each in sections(after)[contract.section_called(name) or ""])
    assert added(after, name, line.upper()) == after


@given(st.text(max_size=200), TEXTS)
def test_no_note_can_break_out_of_its_section(note: str, text: str) -> None:
    said = one_line(note)
    if said:
        before, after = sections(text), sections(added(text, DEAD_ENDS, f"{TODAY}: {said}"))
        before.pop("Dead Ends", None)
        after.pop("Dead Ends")
        assert after == before


# --- edited by hand -------------------------------------------------------------------------


def test_an_old_copy_that_an_editor_saves_loses_no_note(
    rio: Agent, notes: Notes, path: str, clock: Turner
) -> None:
    write(path, empty("rio").replace("## Corrections\n", "## Corrections\n\nby hand\n"))
    notes.note("dead ends", "first")
    old = file_of(path).read_text("utf-8")
    notes.note("questions", "second")
    file_of(path).write_text(old.replace("by hand", "by my hand"), encoding="utf-8")
    clock.advance(1)
    text = notes.read()
    assert text == file_of(path).read_text("utf-8")
    for each in ("first", "second", "by my hand"):
        assert each in text
    events = [line.record["event"] for line in rio.lines()]
    assert events == ["edited_by_hand", "noted", "noted", "edited_by_hand"]


def test_a_session_is_not_told_of_an_old_copy(rio: Agent, notes: Notes, path: str) -> None:
    notes.note("dead ends", "first")
    old = file_of(path).read_bytes()
    notes.note("dead ends", "second")
    file_of(path).write_bytes(old)
    rio.bury()  # as every start does first
    assert "second" in file_of(path).read_text("utf-8")


def test_a_file_that_is_no_text_is_left_as_it_is(notes: Notes, path: str) -> None:
    write(path, "x")
    file_of(path).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Corrupt):
        notes.note("dead ends", "x")
    assert file_of(path).read_bytes() == b"\xff\xfe\x00"


def test_a_large_file_is_added_to_and_a_huge_one_refused(notes: Notes, path: str) -> None:
    large = "# Rio\n## Dead Ends\n" + "".join(f"- note {n}\n" for n in range(40_000))
    write(path, large)
    notes.note("dead ends", "one more")
    assert file_of(path).read_text("utf-8") == f"{large}- {TODAY}: one more\n"
    huge = "x" * (LARGEST + 1)
    write(path, huge)
    with pytest.raises(UsageError):
        notes.note("dead ends", "y")
    assert file_of(path).read_text("utf-8") == huge


@pytest.mark.parametrize("text", ["", " \n ", "\x1b", "x" * (MOST_NOTE + 1)])
def test_a_note_has_a_text_of_some_length(notes: Notes, path: str, text: str) -> None:
    with pytest.raises(UsageError):
        notes.note("dead ends", text)
    assert not file_of(path).exists()


class _Machine(RuleBasedStateMachine):
    """Notes and edits in any order: the file is what a person and we made of it, to the byte."""

    @initialize(text=TEXTS)
    def begin(self, text: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Turner()
        self.home = Home.open(self.folder.name, create=True, timezone="UTC", clock=self.clock)
        self.agent = Agent(self.home, "rio")
        self.file = Path(self.folder.name, "state/rio/memory.md")
        self.model = ""
        self.edit(text)

    def edit(self, text: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(text.encode())
        self.model = text
        self.clock.advance(3600)

    @rule(section=st.sampled_from(HEADINGS), note=NOTES)
    def note(self, section: str, note: str) -> None:
        noted = self.agent.desk.notes.note(section, note)
        base = self.model if self.model.strip() else empty("rio")
        self.model = added(base, section, noted.line)
        self.clock.advance(3600)

    @rule(piece=PIECES, at=st.floats(0, 1))
    def insert(self, piece: str, at: float) -> None:
        text = self.agent.desk.notes.read()
        place = int(len(text) * at)
        self.edit(text[:place] + piece + text[place:])

    @invariant()
    def is_as_it_was_left(self) -> None:
        if hasattr(self, "agent"):
            assert self.agent.desk.notes.read() == self.model
            assert self.file.read_bytes().decode() == self.model

    def teardown(self) -> None:
        if hasattr(self, "agent"):
            self.agent.close()
            self.home.close()
            self.folder.cleanup()


TestAnyOrder = _Machine.TestCase
TestAnyOrder.settings = settings(max_examples=10, stateful_step_count=8, deadline=None)


# --- for a prompt ---------------------------------------------------------------------------


def test_a_prompt_gets_the_newest_of_each_section_and_is_told_what_is_missing() -> None:
    text = "# Rio\n" + "".join(
        f"## {name}\n" + "".join(f"- {name[:4]} {n:03d}\n" for n in range(100))
        for name in HEADINGS[:2]
    )
    shown = bounded(text, 500)
    assert len(shown) <= 600
    for name in HEADINGS[:2]:
        assert f"- {name[:4]} 099\n" in shown
        assert f"- {name[:4]} 000\n" not in shown
    assert "older entries are left out here" in shown


@given(TEXTS, st.integers(1, 200))
def test_any_text_fits(text: str, most: int) -> None:
    shown = bounded(text, most)
    assert shown == text if len(text) <= most else len(shown) <= most + 60 * (text.count("#") + 1)


def test_showing_it_for_a_prompt_leaves_the_file_alone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "--timezone", "UTC")
    for word in ("one", "two"):
        shell("memory", "note", "--agent", "rio", "--section", "flags", word * 100)
    file = shell.home / "state/rio/memory.md"
    before = file.read_bytes()
    found = shell("memory", "show", "--agent", "rio", "--for-prompt", "--most", "600", "--json")
    data = found.json()["data"]
    assert "two" in data["text"]
    assert "one" not in data["text"]
    assert data["left_out"] > 200
    assert shell("memory", "show", "--agent", "rio").out.encode() == before
    assert file.read_bytes() == before
