"""The state of an agent of another system, file by file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.agent import Agent, End, Start
from holdfast.clock import instant_of
from holdfast.contracts.agents import JournalLine
from holdfast.contracts.kind import read
from holdfast.interop.agents import Adoption, Found, problems, refresh, sessions_in
from holdfast.interop.copies import Foreign, Taken
from holdfast.store.home import Home
from holdfast.testing import Turner, lines_of
from tests.ops.foreign import JOURNAL, lines, message, metrics, report, session, tasks

JOURNAL_KEY = "state/rio/journal.jsonl"


def take(home: Home, *files: tuple[str, Any], name: str = "rio") -> dict[str, Taken]:
    """Bring in files given by part; an object is written as JSON."""
    found: list[Found] = []
    for number, (part, value) in enumerate(files):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        ending = "jsonl" if part == "journal" else "md" if part == "notes" else "json"
        path = f"{name}/inbox/{number}.json" if part == "inbox" else f"{name}/{part}.{ending}"
        found.append(Found(part, Foreign(path, data)))  # pyright: ignore[reportArgumentType]
    taken = Adoption(home, name, layout="teleo").take(found)
    return {each.path.rpartition("/")[2]: each for each in taken}


def shown(home: Home, name: str) -> Any:
    return json.loads(Path(home.path, "state/rio", name).read_bytes())


def imported(home: Home) -> Iterator[dict[str, Any]]:
    for line in lines_of(home.log(JOURNAL_KEY)):
        if line.record["event"] == "import":
            yield line.record["imported"]


def test_the_latest_import_is_what_the_views_show(home: Home) -> None:
    take(home, ("report", report("rio", summary="first")), ("metrics", metrics("rio")))
    take(home, ("report", report("rio", summary="second")))
    assert shown(home, "report.json")["summary"] == "second"
    assert shown(home, "metrics.json")["lifetime"]["sessions_total"] == 47


def test_a_view_that_is_lost_is_folded_anew_from_the_journal(home: Home) -> None:
    take(home, ("session", session("rio")))
    for file in Path(home.path, "state/rio").glob("*session.json*"):
        file.unlink()
    refresh(home, "rio")
    assert shown(home, "session.json") == session("rio")


def test_unknown_fields_and_old_ids_survive(home: Home) -> None:
    odd = session("rio", mood="good", errors=["one"], extra={"deep": [1, None, 2.5]})
    assert take(home, ("session", odd))["session.json"].outcome == "taken"
    assert shown(home, "session.json") == odd


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("report", b"{", "not JSON"),
        ("report", [1], "not"),
        ("report", report("leo"), "'leo'"),
        ("report", report("rio", status="sleeping"), "status"),
        ("report", report("rio", schema_version="9.0"), "newer"),
        ("report", {"agent": "rio"}, "missing"),
        ("session", session("rio", started_at="yesterday"), "started_at"),
        ("metrics", metrics("rio", lifetime={}), "lifetime"),
        ("tasks", tasks("rio", tasks={}), "tasks"),
        ("inbox", message("rio", created_at=None), "created_at"),
        ("journal", b"\xff\xff\n", "not UTF-8"),
        ("notes", b"\xff", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_kept_with_the_reason_and_not_used(
    home: Home, part: str, value: Any, says: str
) -> None:
    (taken,) = take(home, (part, value)).values()
    assert taken.outcome == "quarantined"
    assert says in taken.detail
    (told,) = imported(home)
    (file,) = told["files"]
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    assert Path(home.path, "state/rio/imported", file["name"]).read_bytes() == data
    assert "documents" not in told
    visible = {each.name for each in Path(home.path, "state/rio").iterdir()}
    assert {name for name in visible if name[0] != "."} == {"imported", "journal.jsonl"}


def test_the_same_bytes_under_another_name_are_another_message(home: Home) -> None:
    taken = take(home, ("inbox", message("rio")), ("inbox", message("rio")))
    assert [each.outcome for each in taken.values()] == ["taken", "taken"]
    assert len(home.mailbox("state/rio/inbox").waiting()) == 2


def test_priorities_and_ends_are_honoured_when_messages_are_taken(home: Home) -> None:
    take(
        home,
        ("inbox", message("rio", 1)),
        ("inbox", message("rio", 2, priority="high")),
        ("inbox", message("rio", 3, expires_at="2020-01-01T00:00:00Z")),
    )
    claims = home.mailbox("state/rio/inbox").claim("rio", fence=1, seconds=60, limit=9)
    assert [claim.record["id"] for claim in claims] == ["msg-002", "msg-001"]


def test_secrets_do_not_get_into_the_journal(home: Home) -> None:
    take(home, ("session", session("rio", api_key="sk-123456")))
    assert b"sk-123456" not in Path(home.path, JOURNAL_KEY).read_bytes()
    assert "SECRET" in shown(home, "session.json")["api_key"]


def test_tasks_that_were_mended_are_written_as_they_are_meant(home: Home) -> None:
    odd = tasks("rio")
    odd["tasks"][0]["priority"] = "Medium"
    assert take(home, ("tasks", odd))["tasks.json"].outcome == "repaired"
    assert shown(home, "tasks.json")["tasks"][0]["priority"] == "medium"
    clean = json.dumps(tasks("rio"), indent=7).encode()
    assert take(home, ("tasks", clean))["tasks.json"].outcome == "taken"
    assert Path(home.path, "state/rio/tasks.json").read_bytes() == clean


def test_a_lost_or_changed_copy_is_a_problem(home: Home) -> None:
    take(home, ("report", report("rio")), ("journal", lines(JOURNAL)))
    assert list(problems(home, "rio")) == []
    first, second = sorted(Path(home.path, "state/rio/imported").glob("[jr]*"))
    first.write_bytes(b"changed")
    second.unlink()
    assert [each.kind for each in problems(home, "rio")] == ["edited", "missing"]


def test_every_line_of_an_import_is_one_we_may_write(home: Home) -> None:
    take(home, ("report", report("rio")), ("journal", lines(JOURNAL)), ("notes", b"# Rio\n"))
    found = lines_of(home.log(JOURNAL_KEY))
    assert [line.record["event"] for line in found] == ["text_imported", "import"]
    for line in found:
        assert read(JournalLine, line.record, strict=True).findings == []


# --- what the agent does here afterwards ----------------------------------------------------


def everything(home: Home) -> None:
    take(
        home,
        ("report", report("rio")),
        ("session", session("rio")),
        ("metrics", metrics("rio")),
        ("journal", lines(JOURNAL)),
    )


def one_session(home: Home) -> None:
    with Agent(home, "rio") as rio:
        opened = rio.start(Start("research"))
        rio.end("", opened.fence, End("completed", fields={"sources_archived": 5}))


def test_a_session_of_ours_follows_those_that_were_imported(home: Home, clock: Turner) -> None:
    clock.advance(instant_of("2026-04-01T08:00:00Z") - clock.now())
    everything(home)
    with Agent(home, "rio") as rio:
        assert rio.report() == report("rio")
        assert rio.session() == session("rio")
        assert rio.metrics() == metrics("rio")
        assert rio.bury() == []
    one_session(home)
    with Agent(home, "rio") as rio:
        assert rio.report()["last_session"]["id"] == "2026-04-01_rio_001"
        assert rio.report()["next_priority"] == report("rio")["next_priority"]
        assert rio.session()["sources_archived"] == 5
        counted = rio.metrics()
    assert counted["lifetime"]["sessions_total"] == 48
    assert counted["lifetime"]["sources_archived"] == 312 + 5
    assert counted["lifetime"]["claims_proposed"] == 89
    assert counted["rolling_30d"]["sessions"] == 2
    assert counted["rolling_30d"]["sources_archived"] == 8 + 5
    assert shown(home, "metrics.json") == counted


def test_an_import_that_comes_later_leaves_what_the_agent_did_here(home: Home) -> None:
    one_session(home)
    with Agent(home, "rio") as rio:
        before = rio.report(), rio.session()
    everything(home)
    with Agent(home, "rio") as rio:
        assert (rio.report(), rio.session()) == before
        assert rio.metrics()["lifetime"]["sessions_total"] == 48


def test_counters_that_grew_elsewhere_are_not_added_twice(home: Home) -> None:
    everything(home)
    grown = metrics("rio")
    grown["lifetime"] |= {"sessions_total": 50, "sessions_completed": 45}
    take(home, ("metrics", grown), ("journal", lines([*JOURNAL, {"event": "x"}])))
    one_session(home)
    with Agent(home, "rio") as rio:
        assert rio.metrics()["lifetime"]["sessions_total"] == 51


def test_a_session_that_runs_elsewhere_is_none_of_ours(home: Home) -> None:
    take(home, ("session", session("rio", status="running", ended_at=None)))
    with Agent(home, "rio") as rio:
        assert rio.bury() == []
        assert rio.open_session() is None
    one_session(home)


def test_an_import_line_of_somebody_elses_making_breaks_nothing(home: Home) -> None:
    log = home.log(JOURNAL_KEY)
    for odd in (1, {"documents": 1}, {"documents": {"report": 1, "metrics": {"lifetime": []}}}):
        log.append({"event": "import", "imported": odd})
    files = [1, {"path": 1, "sha256": 2}, {"path": "a", "sha256": "b", "name": "../../x"}]
    log.append({"event": "import", "imported": {"files": files, "sessions": [1, {"ended_at": 1}]}})
    log.close()
    refresh(home, "rio")
    assert list(problems(home, "rio")) == []
    assert take(home, ("notes", b"# Rio\n"))["notes.md"].outcome == "taken"
    one_session(home)
    with Agent(home, "rio") as rio:
        assert rio.metrics()["lifetime"]["sessions_total"] == 1


# --- sessions in a journal ------------------------------------------------------------------


def start(at: str, session: str | None = None) -> dict[str, Any]:
    return {"ts": at, "event": "session_start", "session_id": session, "type": "research"}


def end(at: str, session: str | None = None, outcome: str | None = "completed") -> dict[str, Any]:
    return {"ts": at, "event": "session_end", "session_id": session, "outcome": outcome}


ONE, TWO, THREE, FOUR = (f"2026-03-31T20:0{minute}:00Z" for minute in range(1, 5))


def times(found: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(each["started_at"], each["ended_at"]) for each in found]


def test_ends_without_an_id_belong_to_the_session_that_began_last() -> None:
    assert times(sessions_in([start(ONE, "a"), end(TWO), start(THREE, "b"), end(FOUR)])) == [
        (ONE, TWO),
        (THREE, FOUR),
    ]


def test_ends_with_an_id_belong_to_that_session() -> None:
    overlapping = [start(ONE, "a"), start(TWO, "b"), end(THREE, "a"), end(FOUR, "b")]
    assert times(sessions_in(overlapping)) == [(ONE, THREE), (TWO, FOUR)]


def test_what_is_not_written_down_stays_unknown() -> None:
    assert times(sessions_in([start(ONE)])) == [(ONE, None)]
    assert times(sessions_in([end(ONE, "lost")])) == [(None, ONE)]
    assert times(sessions_in([end("$(date)", "lost")])) == [(None, None)]
    assert sessions_in([end(ONE, "lost", outcome=None)])[0]["outcome"] is None


events = st.builds(
    lambda make, at, session: make(at, session),
    st.sampled_from([start, end]),
    st.sampled_from([ONE, TWO, THREE, FOUR, "2026-03-31 20:05:00", 1774987500, None, "x"]),
    st.sampled_from([None, "a", "b"]),
)


@given(st.lists(events | st.just({"event": "orient_complete"}), max_size=12))
def test_every_start_and_every_end_is_in_exactly_one_session(records: list[dict[str, Any]]) -> None:
    found = sessions_in(records)
    starts = sum(record["event"] == "session_start" for record in records)
    ends = sum(record["event"] == "session_end" for record in records)
    assert sum("type" in each for each in found) == starts
    assert sum("outcome" in each for each in found) == ends
    assert max(starts, ends) <= len(found) <= starts + ends
