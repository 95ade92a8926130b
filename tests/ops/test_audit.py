"""The audit: each entry once, found by whoever asks for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import audit
from holdfast.agents.chat import Question, turn
from holdfast.audit import KINDS, redacted, refused, tell
from holdfast.calls.conversation import Conversation
from holdfast.errors import OverBudget, StorageError, UsageError
from holdfast.jobs.verdict import Rules, judge
from holdfast.layout import HOLDFAST
from holdfast.models.scripted import Scripted
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.testing import DAY, Turner, lines_of, together
from tests.ledger.shell import REPO, Shell, Verbs, ended, next_line, on_its_own

GOOD: dict[str, Any] = {
    "action": "COMPLETED",
    "evidence_files": [],
    "summary_for_supervisor": "All is done.",
}
REF = "jobs/j1/history.jsonl#12/0"


@pytest.fixture
def verbs(
    home: Home, path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    return Verbs(path, clock)


def told(home: Home) -> list[dict[str, Any]]:
    log = home.log("audit")
    try:
        return [line.record for line in lines_of(log)]
    finally:
        log.close()


def details(verbs: Verbs, **filters: Any) -> list[str]:
    return [row["detail"] for row in verbs.rows("audit list", **filters)]


# --- telling --------------------------------------------------------------------------------


def test_an_entry_says_what_it_is_about_and_nothing_else(home: Home) -> None:
    tell(home, "schema", "action: missing", job="j1", sequence=3, ref=REF)
    tell(home, "refusal", "no", agent="rio", data={"code": "over_budget"})
    first, second = told(home)
    stamp = first.pop("ts")
    assert stamp.startswith("2023-11-14T12:00:00")
    assert first == {
        "event": "schema", "detail": "action: missing", "job_id": "j1", "sequence": 3, "ref": REF,
    }  # fmt: skip
    assert second["data"] == {"code": "over_budget"}
    assert "job_id" not in second


def test_an_unknown_kind_is_refused(home: Home) -> None:
    with pytest.raises(UsageError, match="no kind of audit"):
        tell(home, "oops", "x")
    assert told(home) == []


def test_whatever_text_it_is_it_is_told_and_not_without_end(home: Home) -> None:
    tell(home, "schema", "a\udc80b\n\x1b[31m" + "x" * 9000)
    (entry,) = told(home)
    assert entry["detail"].startswith("a\\udc80b\n\x1b[31m")
    assert len(entry["detail"]) == 2000


def test_secrets_in_an_entry_are_masked(home: Home, path: str) -> None:
    tell(home, "schema", 'it said {"password": "hunter2-hunter2"}', data={"api_key": "abcdef0123"})
    written = "".join(file.read_text() for file in Path(path, "audit").glob("*.jsonl"))
    assert "hunter2" not in written
    assert "abcdef0123" not in written


def test_the_same_is_told_once_also_by_one_who_comes_after_a_crash(
    home: Home, path: str, clock: Turner
) -> None:
    assert tell(home, "schema", "x", ref=REF)
    assert not tell(home, "schema", "x", ref=REF)
    assert tell(home, "schema", "x", ref=REF + "1")
    clock.advance(3 * DAY)
    tell(home, "refusal", "another day begins a file")
    with Home.open(path, clock=clock) as again:
        assert not tell(again, "schema", "x", ref=REF)
        assert tell(again, "schema", "x", ref="other")
    assert not tell(home, "schema", "x", ref="other"), "what another process told counts too"
    assert len(told(home)) == 4


def test_without_a_ref_the_same_can_happen_again(home: Home) -> None:
    assert tell(home, "refusal", "x")
    assert tell(home, "refusal", "x")
    assert len(told(home)) == 2


def test_only_the_newest_files_are_searched(home: Home, path: str, clock: Turner) -> None:
    tell(home, "schema", "long ago", ref=REF)
    for _ in range(audit.FILES_SEARCHED):
        clock.advance(DAY)
        tell(home, "refusal", "a day")
    with Home.open(path, clock=clock) as again:
        assert tell(again, "schema", "long ago", ref=REF)


def test_telling_reads_what_is_new_and_not_everything_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = FileLog.read

    def counting(self: FileLog, *after: Any) -> Iterator[Any]:
        for line in plain(self, *after):
            read.append(line.segment)
            yield line

    monkeypatch.setattr(FileLog, "read", counting)
    for number in range(100):
        assert tell(home, "evidence_missing", "x", ref=f"j1#{number}")
    assert len(read) < 110


def test_many_that_tell_the_same_at_once_tell_it_once(home: Home, path: str) -> None:
    script = (
        "import sys\n"
        "from holdfast.audit import tell\n"
        "from holdfast.store.home import Home\n"
        "with Home.open(sys.argv[1]) as home:\n"
        "    for number in range(10):\n"
        "        tell(home, 'schema', 'x', ref=f'ref-{number}')\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", script, path]) for _ in range(3)]
    together(*[lambda: [tell(home, "schema", "x", ref=f"ref-{n}") for n in range(10)]] * 3)
    assert [each.wait(60) for each in others] == [0, 0, 0]
    assert sorted(each["ref"] for each in told(home)) == sorted(f"ref-{n}" for n in range(10))


@pytest.mark.usefixtures("no_leak")
def test_telling_leaves_nothing_open(path: str) -> None:
    with Home.open(path, create=True, timezone="UTC") as home:
        tell(home, "schema", "x", ref=REF)


# --- one of each kind -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("schema", {"evidence_files": "x"}),
        ("action", {"action": "DONE"}),
        ("summary", {"summary_for_supervisor": ""}),
        ("evidence_missing", {"evidence_files": ["no.txt"]}),
        ("evidence_escape", {"evidence_files": ["../x"]}),
    ],
)
def test_a_rule_that_an_answer_breaks_is_one_entry(
    kind: str, changed: dict[str, Any], home: Home, verbs: Verbs, tmp_path: Path
) -> None:
    judged = judge(json.dumps(GOOD | changed), Rules(), workspace=str(tmp_path))
    (found,) = [*judged.violations, *judged.warnings]
    tell(home, found.kind, found.reason, job="j1", sequence=0, ref=f"{REF}")
    (row,) = verbs.rows("audit list", kind=kind, job="j1")
    assert row["detail"] == found.reason


def test_a_session_that_may_not_begin_is_a_refusal(verbs: Verbs) -> None:
    verbs("budget set", session="0")
    with pytest.raises(OverBudget):
        verbs("session start", agent="rio")
    (row,) = verbs.rows("audit list", kind="refusal", agent="Rio")
    assert "session 2023-11-14_rio_001" in row["detail"]
    assert verbs("audit show", seq=row["seq"]).data["data"] == {"code": "over_budget"}


def test_a_question_that_may_not_be_asked_is_a_refusal(home: Home, verbs: Verbs) -> None:
    model = Scripted([{"reply": "x", "cost_usd": 0.4}])
    session = "2023-11-14_rio_001"
    said = Conversation(home, lambda part: HOLDFAST.path(part, "rio"))
    with said, pytest.raises(OverBudget):
        turn(said, model, Question("q"), session, limit_usd=0.3)
    (row,) = verbs.rows("audit list", kind="refusal", agent="rio")
    assert row["detail"].startswith(f"a question in {session}: ")
    assert model.asked == []


def test_secrets_that_are_masked_are_counted_and_not_shown(home: Home, path: str) -> None:
    token = "ghp_" + "a1B2" * 9
    record = {"text": f"use {token}", "password": "hunter2-hunter2", "masked": "[SECRET]"}
    assert redacted(home, "the answer", record, job="j1", sequence=4, ref=REF) == 2
    (entry,) = told(home)
    assert entry["event"] == "redaction"
    assert entry["detail"] == "2 secrets masked in the answer"
    assert entry["data"] == {"count": 2}
    assert redacted(home, "the answer", {"text": "All tests pass.", "was": "[SECRET]"}) == 0
    assert len(told(home)) == 1
    written = "".join(file.read_text() for file in Path(path, "audit").glob("*.jsonl"))
    assert token not in written


def test_a_refusal_that_cannot_be_written_is_still_a_refusal(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("the disk is gone", hint="look at it")

    monkeypatch.setattr(FileLog, "append", fail)
    refused(home, "a session", OverBudget("no money", hint="earn some"), agent="rio")
    monkeypatch.undo()
    assert told(home) == []


# --- looking --------------------------------------------------------------------------------


@pytest.fixture
def filled(home: Home, clock: Turner) -> Home:
    """Three days; one entry is of the store itself."""
    tell(home, "schema", "one", job="j1")
    tell(home, "action", "two", job="j2", agent="rio")
    clock.advance(DAY)
    home.notice("clock_went_back", "three")
    tell(home, "schema", "four", job="j2")
    clock.advance(DAY)
    tell(home, "refusal", "five", agent="rio")
    return home


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["one", "two", "three", "four", "five"]),
        ({"job": "j2"}, ["two", "four"]),
        ({"agent": "RIO"}, ["two", "five"]),
        ({"kind": "schema"}, ["one", "four"]),
        ({"kind": "clock_went_back"}, ["three"]),
        ({"since": "1h"}, ["five"]),
        ({"since": "2023-11-15"}, ["three", "four", "five"]),
        ({"limit": 2}, ["four", "five"]),
        ({"limit": 0}, ["one", "two", "three", "four", "five"]),
        ({"job": "j2", "kind": "schema", "agent": "rio"}, []),
    ],
)
@pytest.mark.usefixtures("filled")
def test_entries_are_found_by_what_they_are_about(
    verbs: Verbs, filters: dict[str, Any], found: list[str]
) -> None:
    assert details(verbs, **filters) == found
    if "limit" not in filters:
        assert [row["detail"] for row in verbs("audit tail", **filters)] == found


@pytest.mark.usefixtures("filled")
def test_a_list_says_whether_there_is_more_and_counts_by_kind(verbs: Verbs) -> None:
    found = verbs("audit list", limit=3)
    assert found.truncated
    assert found.counts == {"shown": 3, "clock_went_back": 1, "schema": 1, "refusal": 1}
    assert not verbs("audit list", limit=5).truncated


@pytest.mark.usefixtures("filled")
def test_an_entry_is_shown_with_what_its_kind_means(verbs: Verbs) -> None:
    shown = verbs("audit show", seq=1).data
    assert (shown["seq"], shown["detail"], shown["job_id"]) == (1, "one", "j1")
    assert shown["means"] == KINDS["schema"]
    assert "means" not in verbs("audit show", seq=3).data


def test_what_is_not_there_is_told(verbs: Verbs, path: str) -> None:
    shell = Shell(Path(path).parent)
    assert shell("audit", "show", "9", "--json").error()["code"] == "not_found"
    assert details(verbs, kind="shema") == []
    assert "the rules are schema" in verbs.warnings[0]
    assert verbs("audit tail") == []
    assert verbs.warnings == ["no entries yet"]
    with pytest.raises(UsageError):
        verbs("audit list", limit=-1)


def test_a_damaged_line_is_left_out_and_told(filled: Home, verbs: Verbs, path: str) -> None:
    with open(Path(path, "audit", "2023-11-15.jsonl"), "ab") as file:
        file.write(b"\x00garbage\n")
    assert len(details(verbs)) == 5
    assert "1 damaged line" in verbs.warnings[0]


def test_following_shows_what_is_there_and_then_what_comes(
    filled: Home, path: str, verbs: Verbs
) -> None:
    shell = Shell(Path(path).parent)
    watch = ("audit", "tail", "--follow", "--json", "--limit", "1", "--agent", "rio")
    with ended(shell.start(*watch)) as process:
        assert json.loads(next_line(process))["detail"] == "five"
        tell(filled, "schema", "of nobody")
        tell(filled, "timeout", "six", agent="rio")
        assert json.loads(next_line(process))["detail"] == "six"


def test_the_files_of_the_audit_are_known(filled: Home, path: str) -> None:
    shell = Shell(Path(path).parent)
    checked = shell("validate", f"{path}/audit", "--strict", "--json")
    assert checked.code == 0, checked.out
    assert checked.json()["counts"]["files"] == 3


def test_the_page_about_the_audit_says_what_there_is() -> None:
    page = (REPO / "docs/audit.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(program, {})


def test_the_line_that_the_page_shows_has_the_stamp_that_is_written(home: Home) -> None:
    page = (REPO / "docs/audit.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*?)\n```", page, re.DOTALL)
    tell(home, "schema", "x")
    with audit.Audit(home) as log:
        (entry,) = log.read()
    forms = [re.sub(r"[0-9]", "0", str(each["ts"])) for each in (json.loads(shown), entry.record)]
    assert forms[0] == forms[1]
