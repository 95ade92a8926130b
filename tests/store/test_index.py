"""The index of a log: the same answers as without one, whatever happened to either."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store import index as indexing
from holdfast.store.home import Home
from holdfast.store.primitives import Line, Question
from holdfast.testing import DAY, FakeClock, Turner

LOG = "ledger/rio"
TASKS = [f"wo-{number}" for number in range(6)]
EVENTS = ["task_start", "task_result", "info"]


def fill(home: Home, chosen: list[int]) -> None:
    """A line for each number, written with one sync."""
    log = home.log(LOG)
    log.append_all(
        [
            {
                "session_id": f"{home.day()}_rio_{1 + each % 3:03d}",
                "event": EVENTS[each % len(EVENTS)],
                "task_id": TASKS[each % len(TASKS)],
                "summary": f"number {each}",
                "data": {},
                "number": each,
            }
            for each in chosen
        ]
    )
    log.close()


def found_in(
    home: Home, asked: dict[str, str], limit: int | None, *, indexed: bool
) -> list[tuple[Line, Any]]:
    def fits(line: Line) -> bool:
        return all(line.record.get(name) == value for name, value in asked.items())

    log = home.log(LOG)
    if indexed:
        found = log.find(Question(asked, limit, worth=0, behind=600))
    else:
        found = log.find(Question({}, limit, wanted=fits))
    log.close()
    return [(line, line.record["summary"]) for line in found.lines]


def files(path: str | Path) -> list[Path]:
    return sorted(Path(path, "cache/ledger/rio").glob("*.index"))


def test_the_first_question_makes_it_and_the_next_one_reads_little_of_the_ledger(
    home: Home, path: str, clock: Turner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, list(range(300)))
    clock.advance(DAY)
    fill(home, list(range(300)))
    asked = {"task_id": "wo-3"}
    before = found_in(home, asked, None, indexed=False)
    assert found_in(home, asked, None, indexed=True) == before
    assert len(before) == 100
    assert [each.name for each in files(path)] == [
        "2023-11-14.jsonl.index",
        "2023-11-15.jsonl.index",
    ]
    decoded = 0
    real = indexing.read_lines

    def counted(sources: Any) -> Iterator[Any]:
        nonlocal decoded
        for line in real(sources):
            decoded += 1
            yield line

    monkeypatch.setattr(indexing, "read_lines", counted)
    assert found_in(home, asked, None, indexed=True) == before
    assert decoded <= 105


DAMAGE: list[Callable[[Path], object]] = [
    lambda file: file.unlink(),
    lambda file: file.write_bytes(b""),
    lambda file: file.write_bytes(file.read_bytes()[:-8]),
    lambda file: file.write_bytes(file.read_bytes()[:-8] + bytes(8)),
    lambda file: file.write_bytes(bytes(len(file.read_bytes()))),
    lambda file: file.write_bytes(b"{}"),
]


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_a_damaged_or_lost_index_is_made_again(home: Home, path: str, number: int) -> None:
    fill(home, list(range(100)))
    asked = {"task_id": "wo-1"}
    before = found_in(home, asked, None, indexed=True)
    (file,) = files(path)
    good = file.read_bytes()
    DAMAGE[number](file)
    assert found_in(home, asked, None, indexed=True) == before
    assert files(path)[0].read_bytes() == good


def test_a_folder_in_place_of_the_index_hurts_nobody(home: Home, path: str) -> None:
    fill(home, list(range(100)))
    Path(path, "cache/ledger/rio/2023-11-14.jsonl.index").mkdir(parents=True)
    asked = {"task_id": "wo-1"}
    without = found_in(home, asked, None, indexed=False)
    assert found_in(home, asked, None, indexed=True) == without


def test_a_cache_that_leads_elsewhere_is_not_followed(
    home: Home, path: str, tmp_path: Path
) -> None:
    fill(home, list(range(100)))
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", f"{path}/cache")
    asked = {"task_id": "wo-1"}
    assert len(found_in(home, asked, None, indexed=True)) == 17
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_disk_that_cannot_be_written_is_read_all_the_same(home: Home, path: str) -> None:
    fill(home, list(range(100)))
    Path(path, "cache").write_text("in the way", encoding="utf-8")
    assert len(found_in(home, {"task_id": "wo-1"}, None, indexed=True)) == 17


def test_many_who_build_at_once_get_the_same(home: Home, path: str) -> None:
    fill(home, list(range(2000)))
    asked = {"session_id": "2023-11-14_rio_002"}
    expected = found_in(home, asked, None, indexed=False)
    answers: list[list[tuple[Any, ...]]] = []

    def ask() -> None:
        with Home.open(path) as mine:
            answers.append(found_in(mine, asked, None, indexed=True))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 8
    assert not [each for each in Path(path, "cache/ledger/rio").iterdir() if "tmp" in each.name]


def test_other_fields_than_before_are_taken_in_too(home: Home, path: str) -> None:
    fill(home, list(range(100)))
    for asked in ({"task_id": "wo-1"}, {"event": "info"}, {"task_id": "wo-1", "event": "info"}):
        assert found_in(home, asked, None, indexed=True) == found_in(
            home, asked, None, indexed=False
        )
    (file,) = files(path)
    before = file.read_bytes()
    found_in(home, {"task_id": "wo-2"}, None, indexed=True)
    assert file.read_bytes() == before, "it knows both"


def test_no_index_is_kept_for_one_who_must_not_write(home: Home, path: str) -> None:
    fill(home, list(range(100)))
    question, log = Question({"event": "info"}, keep=False, worth=0, behind=0), home.log(LOG)
    assert len(log.find(question).lines) == 33
    assert not files(path)
    log.close()


def test_a_log_of_one_file_and_its_parts_is_searched(home: Home, path: str) -> None:
    log = home.log("state/rio/journal.jsonl", rotate_at=200)
    for n in range(30):
        log.append({"event": EVENTS[n % 3], "n": n})
    log.archive()
    question = Question({"event": "info"}, 4, worth=0)
    for _ in range(2):
        assert [line.record["n"] for line in log.find(question).lines] == [20, 23, 26, 29]
    assert Path(path, "cache/state/rio/journal.jsonl").is_dir()
    log.close()


def test_who_waits_is_told_how_far_it_is(home: Home) -> None:
    fill(home, list(range(100)))
    told, log = list[tuple[int, int]](), home.log(LOG)
    log.find(Question({"event": "info"}, worth=0, behind=0, progress=lambda *at: told.append(at)))
    assert told[-1][0] == told[-1][1] > 0
    log.close()


@pytest.mark.parametrize("content", [b"{}", b'{"version":"2 big"}', b"[]"])
def test_an_index_of_another_form_is_made_again(home: Home, path: str, content: bytes) -> None:
    fill(home, list(range(100)))
    asked = {"task_id": "wo-1"}
    before = found_in(home, asked, None, indexed=True)
    (file,) = files(path)
    file.write_bytes(b"%08x\n%b\n" % (crc32(content + b"\n"), content))
    assert found_in(home, asked, None, indexed=True) == before


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("known", ["no", "yes", "and nothing shows that it has changed"])
def test_lines_that_a_disk_lost_are_left_out(
    home: Home, path: str, clock: Turner, packed: bool, known: str
) -> None:
    fill(home, list(range(4000)))
    clock.advance(DAY)
    fill(home, list(range(10)))
    log = home.log(LOG)
    if packed:
        log.archive()
    asked = {"task_id": "wo-2"}
    before = found_in(home, asked, None, indexed=known != "no")
    (file,) = Path(path, "ledger/rio").glob(f"2023-11-14.jsonl{'.zst' if packed else ''}")
    data, seen = file.read_bytes(), file.stat()
    middle = len(data) // 2
    with file.open("r+b") as writer:
        writer.seek(middle)
        writer.write(b"\0" * 2000)
    back = 0 if known.startswith("and") else 1_000_000
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns + back))
    found = found_in(home, asked, None, indexed=True)
    assert found == found_in(home, asked, None, indexed=False)
    assert 2 <= len(found) < len(before)
    log.close()


def test_bytes_without_an_end_are_no_line(home: Home, path: str) -> None:
    fill(home, list(range(100)))
    with Path(path, "ledger/rio/2023-11-14.jsonl").open("ab") as file:
        file.write(b"x" * (20 << 20))
    asked = {"task_id": "wo-1"}
    for _ in range(2):
        assert len(found_in(home, asked, None, indexed=True)) == 17


def test_only_texts_are_indexed(home: Home) -> None:
    fill(home, list(range(100)))
    for worth in (0, 1 << 30):
        question = Question({"number": "7"}, worth=worth, behind=0)
        assert home.log(LOG).find(question).lines == []


def test_days_before_one_are_not_looked_at(home: Home, path: str, clock: Turner) -> None:
    fill(home, list(range(100)))
    clock.advance(DAY)
    fill(home, list(range(10)))
    log = home.log(LOG)
    assert len(log.find(Question({"event": "info"}, since="2023-11-15", worth=0)).lines) == 3
    assert len(log.find(Question({"event": "info"}, since="2023-11-14", worth=0)).lines) == 36
    log.close()


def test_nothing_is_found_in_a_log_that_nobody_wrote(home: Home) -> None:
    assert home.log(LOG).find(Question({"event": "info"})) == ([], [])


# --- as without, whatever happens -----------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.integers(0, 30), min_size=1, max_size=40)),
        st.tuples(st.just("day"), st.just(0)),
        st.tuples(st.just("archive"), st.just(0)),
        st.tuples(st.just("foreign"), st.integers(0, 5)),
        st.tuples(st.just("garbage"), st.sampled_from([b"x\n", b'{"a":', b"\0\0\n", b"\n"])),
        st.tuples(st.just("edit"), st.integers(0, 5)),
        st.tuples(st.just("cut"), st.integers(1, 400)),
        st.tuples(st.just("copy"), st.just(0)),
        st.tuples(st.just("forget"), st.just(0)),
        st.tuples(
            st.just("ask"),
            st.tuples(
                st.sampled_from(
                    [
                        {"task_id": "wo-2"},
                        {"event": "info"},
                        {"session_id": "2023-11-14_rio_001"},
                        {"task_id": "wo-4", "event": "task_result"},
                        {"task_id": "nothing"},
                    ]
                ),
                st.sampled_from([None, 1, 3, 50]),
            ),
        ),
    ),
    max_size=14,
)


def act(home: Home, path: str, clock: FakeClock, deed: str, value: Any) -> None:
    folder = Path(path, "ledger/rio")
    there = sorted(folder.glob("*.jsonl")) if folder.exists() else []
    match deed:
        case "write":
            fill(home, value)
        case "day":
            clock.advance(DAY)
        case "archive":
            home.log("ledger/rio").archive()
        case "forget":
            shutil.rmtree(Path(path, "cache"), ignore_errors=True)
        case "foreign" | "garbage" if there:
            line = b'{"ts":"2023-11-14T10:00:00Z","agent":"rio","event":"info",'
            line += (
                f'"task_id":"{TASKS[value]}","summary":"foreign"}}\n'.encode()
                if (deed == "foreign")
                else b""
            )
            with there[-1].open("ab") as file:
                file.write(line if deed == "foreign" else value)
        case "edit" if there:
            # In place and of the same length, then with another time: as an editor leaves it.
            data = there[0].read_bytes()
            with there[0].open("r+b") as file:
                file.write(data.replace(b"wo-2", b"wo-4") if value % 2 else data.replace(
                    b"wo-4", b"wo-2"))  # fmt: skip
            os.utime(there[0], (clock.now() + value, clock.now() + value))
        case "cut" if there:
            size = there[-1].stat().st_size
            os.truncate(there[-1], max(0, size - value))
        case "copy" if there:
            data = there[0].read_bytes()
            there[0].unlink()
            there[0].write_bytes(data)
        case _:
            pass


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    top = tmp_path_factory.mktemp("index")
    return (str(top / str(number)) for number in range(10**6))


@settings(max_examples=120)
@given(STEPS)
def test_a_list_with_an_index_is_the_list_without(places: Iterator[str], steps: list[Any]) -> None:
    path, clock = next(places), FakeClock()
    with Home.open(path, create=True, timezone="UTC", clock=clock) as home:
        fill(home, list(range(10)))
        for deed, value in [*steps, ("ask", ({"task_id": "wo-2"}, None))]:
            if deed != "ask":
                act(home, path, clock, deed, value)
                continue
            asked, limit = value
            expected = found_in(home, asked, limit, indexed=False)
            assert found_in(home, asked, limit, indexed=True) == expected
    shutil.rmtree(path)


def test_the_newest_are_found_from_the_end_however_far_back_they_are(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_END", 100)  # less than a line: it grows, and cuts into lines
    fill(home, [3, *([0] * 40), 3, *([0] * 40)])
    log = home.log(LOG)
    try:
        for newest, numbers in ((1, [3]), (2, [3, 3]), (9, [3, 3])):
            found = log.find(Question({"task_id": "wo-3"}, newest))
            assert [line.record["number"] for line in found.lines] == numbers
            assert not found.damaged
    finally:
        log.close()


def test_what_a_log_writes_about_itself_is_never_found(home: Home) -> None:
    control = Line(1, "0" * 64, {"_log": "cut_tail", "task_id": "wo-3"}, "", 0, 0)
    assert not Question({"task_id": "wo-3"}).wants(control)
    assert Question({"task_id": "wo-3"}).wants(control._replace(record={"task_id": "wo-3"}))
