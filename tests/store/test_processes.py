"""Many processes on one home: every acknowledged line once, in one order."""

from __future__ import annotations

import json
import os
import select
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import Busy
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.testing import Turner, data_of, lines_of
from tests.store.children import SECONDS, child, fork


class Fork:
    """A forked worker that answers each line it is sent with a line."""

    def __init__(self, work: Callable[[str], Any]) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self.pid = fork()
        if self.pid == 0:
            os.close(ours[0])
            os.close(theirs[1])
            self._serve(work, theirs[0], ours[1])
        os.close(ours[1])
        os.close(theirs[0])
        self._in, self._out, self._rest = ours[0], theirs[1], b""

    def _serve(self, work: Callable[[str], Any], asks: int, answers: int) -> None:
        status = 1
        try:
            with open(asks, encoding="utf-8") as lines:
                for line in lines:
                    os.write(answers, json.dumps(work(line.strip())).encode() + b"\n")
            status = 0
        finally:
            os._exit(status)

    def ask(self, line: str) -> None:
        os.write(self._out, line.encode() + b"\n")

    def answer(self) -> Any:
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], SECONDS)
            assert ready, "a worker is silent"
            data = os.read(self._in, 1 << 20)
            assert data, "a worker died"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def end(self) -> None:
        os.close(self._out)
        os.close(self._in)
        # It would see the end of its pipe only after those that were forked later.
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def workers() -> Any:
    made: list[Fork] = []

    def start(count: int, work: Callable[[int], Callable[[str], Any]]) -> list[Fork]:
        for number in range(count):
            made.append(Fork(lambda line, number=number: work(number)(line)))
        return made

    yield start
    for each in made:
        each.end()


def all_of(workers: list[Fork], line: str) -> list[Any]:
    """What everybody answers, asked at the same time."""
    for each in workers:
        each.ask(line)
    return [each.answer() for each in workers]


def test_sixteen_processes_write_one_log(path: str, workers: Any) -> None:
    with Home.open(path, create=True, timezone="UTC", clock=SystemClock()):
        pass

    def work(number: int) -> Callable[[str], Any]:
        def act(line: str) -> list[Any]:
            with Home.open(path) as home:
                log = home.log("state/a.jsonl")
                return [[log.append({"n": [number, each]}).seq, each] for each in range(100)]

        return act

    answers = all_of(workers(16, work), "go")
    acked = {seq: [number, each] for number, answer in enumerate(answers) for seq, each in answer}
    assert sorted(acked) == list(range(1, 16 * 100 + 1))
    with Home.open(path) as home:
        found = {line.seq: line.record["n"] for line in lines_of(home.log("state/a.jsonl"))}
        assert found == acked
        for number in range(16):
            mine = [each for writer, each in found.values() if writer == number]
            assert mine == sorted(mine)
        assert list(check(home)) == []


def test_processes_that_rotate_at_the_same_time_lose_nothing(path: str, workers: Any) -> None:
    with Home.open(path, create=True, timezone="UTC"):
        pass

    def work(number: int) -> Callable[[str], Any]:
        def act(line: str) -> list[int]:
            with Home.open(path) as home:
                log = home.log("state/a.jsonl", rotate_at=400)
                return [log.append({"n": [number, each]}).seq for each in range(30)]

        return act

    answers = all_of(workers(4, work), "go")
    assert sorted(seq for answer in answers for seq in answer) == list(range(1, 121))
    with Home.open(path) as home:
        log = home.log("state/a.jsonl")
        assert len(log.segments()) > 20
        assert len(lines_of(log)) == 120
        assert list(check(home)) == []


def test_a_new_day_begins_once_for_all_processes(path: str, workers: Any) -> None:
    with Home.open(path, create=True, timezone="UTC"):
        pass

    def work(number: int) -> Callable[[str], Any]:
        clock = Turner()
        clock.waits = True
        home = Home.open(path, clock=clock)
        log = home.log("ledger/rio")

        def act(line: str) -> list[Any]:
            clock.advance(86_400)
            return list(log.append({"n": [number, line]}))

        return act

    made: dict[int, Callable[[str], Any]] = {}
    team = workers(3, lambda number: made.setdefault(number, work(number)))
    days = 20
    for day in range(days):
        answers = all_of(team, str(day))
        assert len({segment for _, _, segment, _ in answers}) == 1
        assert sorted(seq for seq, *_ in answers) == [3 * day + 1, 3 * day + 2, 3 * day + 3]
    with Home.open(path) as home:
        log = home.log("ledger/rio")
        assert len(log.segments()) == days
        per_day = Counter(line.segment for line in lines_of(log))
        assert set(per_day.values()) == {3}
        assert list(check(home)) == []


def test_documents_are_counted_up_by_many_processes(path: str, workers: Any) -> None:
    with Home.open(path, create=True, timezone="UTC"):
        pass

    def act(line: str) -> bool:
        with Home.open(path) as home:
            for _ in range(15):
                home.document("deep/er/count").update(lambda old: b"%d" % (int(old or 0) + 1))
        return True

    assert all(all_of(workers(6, lambda number: act), "go"))
    with Home.open(path) as home:
        assert data_of(home.document("deep/er/count")) == b"90"


def test_a_lease_has_one_owner_among_many_processes(path: str, workers: Any) -> None:
    with Home.open(path, create=True, timezone="UTC"):
        pass
    kept: list[Any] = []

    def act(line: str) -> int | None:
        if line == "release":
            while kept:
                kept.pop().release()
            return None
        lease = Home.open(path).lease("jobs/a")
        try:
            fence = lease.acquire("x")
        except Busy:
            return None
        kept.append(lease)
        return fence

    team = workers(8, lambda number: act)
    fences: list[int] = []
    for _ in range(10):
        owners = [fence for fence in all_of(team, "acquire") if fence is not None]
        assert len(owners) == 1
        fences += owners
        all_of(team, "release")
    assert fences == sorted(set(fences))


def test_a_home_that_many_processes_make_is_one_home(path: str, workers: Any) -> None:
    def work(number: int) -> Callable[[str], Any]:
        def act(line: str) -> Any:
            with Home.open(path, create=True, timezone=f"+{number:02d}:00") as home:
                home.log(f"a{number}.jsonl").append({"password": "same"})
                (found,) = lines_of(home.log(f"a{number}.jsonl"))
                return [found.record["password"], home.settings.timezone]

        return act

    answers = all_of(workers(8, work), "go")
    assert len({tag for tag, _ in answers}) == 1
    assert len({zone for _, zone in answers}) == 1


def test_a_process_killed_in_the_middle_of_anything_leaves_a_sound_log(path: str) -> None:
    points = (
        "log.append.written",
        "log.append.unlocked",
        "log.append.synced",
        "segment.written",
        "segment.linked",
        "segment.durable",
    )
    script = f"""
home = Home.open({path!r}, create=True, timezone="UTC")
log = home.log("state/a.jsonl", rotate_at=500)
for number in range(100):
    say(log.append({{"n": number}}).seq)
"""
    acked: list[int] = []
    for point in points:
        with child(script, {"HOLDFAST_FAILPOINTS": f"{point}=kill@3"}) as made:
            try:
                while True:
                    acked.append(int(made.hear()))
            except AssertionError:
                assert made.wait() == -9
        with Home.open(path) as home:
            log = home.log("state/a.jsonl")
            seqs = [line.seq for line in lines_of(log)]
            assert seqs == list(range(1, len(seqs) + 1))
            assert set(acked) <= set(seqs)
            assert log.verify().problems == []
            assert {finding.kind for finding in check(home)} <= {"temporary"}
    assert len(acked) == len(set(acked)) > 10
