"""The index of a ledger: the same answers as without one, whatever happened to either."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.ledger import index as indexing
from holdfast.ledger.book import Found, Ledger
from holdfast.ledger.entry import entry
from holdfast.ledger.index import Index
from holdfast.store.home import Home
from holdfast.testing import DAY, FakeClock, Turner
from tests.ledger.shell import Ran, Shell, Verbs

TASKS = [f"wo-{number}" for number in range(6)]
EVENTS = ["task_start", "task_result", "info"]


def fill(home: Home, chosen: list[int], agent: str = "rio") -> None:
    """An entry for each number, written with one sync."""
    log = home.log(f"ledger/{agent}")
    log.append_all(
        [
            entry(
                agent=agent,
                session=f"{home.day()}_{agent}_{1 + each % 3:03d}",
                event=EVENTS[each % len(EVENTS)],
                task=TASKS[each % len(TASKS)],
                source="test",
                summary=f"number {each}",
                data={},
            )
            for each in chosen
        ]
    )
    log.close()


def asked_of(asked: dict[str, str]) -> Callable[[Found], bool]:
    return lambda found: all(found.entry.get(name) == value for name, value in asked.items())


def found_in(
    home: Home, asked: dict[str, str], limit: int | None, *, indexed: bool
) -> list[tuple[Any, ...]]:
    with Ledger(home, "rio") as ledger:
        index = Index(home, ledger.key, "rio", asked, worth=0, behind=600) if indexed else None
        found = ledger.newest(limit, asked_of(asked), None, index)
    return [(each.line, each.record["summary"]) for each in found]


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


def test_a_small_ledger_has_none(verbs: Verbs) -> None:
    verbs.write("a", task="wo-1")
    assert len(verbs.rows("ledger list", task="wo-1")) == 1
    assert not Path(verbs.path, "cache/ledger").exists()


def test_the_verb_makes_one_for_a_large_ledger_and_writing_never_does(
    home: Home, path: str, clock: Turner
) -> None:
    verbs = Verbs(path, clock)
    fill(home, list(range(6000)))
    assert os.path.getsize(f"{path}/ledger/rio/2023-11-14.jsonl") > indexing.WORTH
    verbs.write("one more", task="wo-3")
    assert not files(path)
    assert len(verbs.rows("ledger list", task="wo-3", limit=0)) == 1001
    made = files(path)
    assert len(made) == 1
    bytes_before = made[0].read_bytes()
    verbs.write("and one", task="wo-3")
    assert made[0].read_bytes() == bytes_before
    assert verbs.texts(task="wo-3", limit=2) == ["one more", "and one"]
    session = verbs.rows("ledger list", limit=1)[0]["session_id"]
    plain = [row["seq"] for row in verbs.rows("ledger list", limit=0)
             if row["session_id"] == session]  # fmt: skip
    assert [row["seq"] for row in verbs.rows("ledger list", session=session, limit=0)] == plain


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


def test_a_builder_that_is_killed_leaves_the_old_index_or_none(shell: Shell) -> None:
    def ask(**env: str) -> Ran:
        return shell("ledger", "list", "--task", "wo-1", "--limit", "0", "--json", env=env)

    kill = {"HOLDFAST_FAILPOINTS": "index.written=kill"}
    with Home.open(str(shell.home), create=True, timezone="UTC") as home:
        fill(home, list(range(6000)))
        assert ask(**kill).code == -9
        assert not files(shell.home)
        assert len(ask().rows()) == 1000
        (made,) = files(shell.home)
        before = made.read_bytes()
        fill(home, list(range(6000)))
        assert ask(**kill).code == -9
        assert made.read_bytes() == before
        assert len(ask().rows()) == 2000
        assert len(made.read_bytes()) > len(before)
    assert not [each for each in made.parent.iterdir() if each.name.endswith(".tmp")]


def test_at_a_terminal_one_sees_that_it_is_made(shell: Shell) -> None:
    with Home.open(str(shell.home), create=True, timezone="UTC") as home:
        fill(home, list(range(12000)))
    command = shell.command(["ledger", "list", "--task", "wo-1", "--limit", "1"])
    master, slave = pty.openpty()
    try:
        for seen in (True, False):
            subprocess.run(
                command,
                stderr=slave,
                stdout=subprocess.DEVNULL,
                env=shell.environment(),
                check=True,
            )
            os.write(slave, b"END")
            said = b""
            while not said.endswith(b"END"):
                said += os.read(master, 4096)
            assert (b"making an index of the ledger of rio: " in said) is seen
    finally:
        os.close(master)
        os.close(slave)


def test_damaged_lines_are_still_told_of(home: Home, path: str, clock: Turner) -> None:
    fill(home, list(range(6000)))
    with open(f"{path}/ledger/rio/2023-11-14.jsonl", "ab") as file:
        file.write(b"no record\n")
    fill(home, list(range(6000)))
    verbs = Verbs(path, clock)
    for _ in range(2):
        verbs.rows("ledger list", task="wo-1")
        assert verbs.warnings == [
            "rio: left out 1 damaged line; `holdfast ledger verify` tells where"
        ]


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
