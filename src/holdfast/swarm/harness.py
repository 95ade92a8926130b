"""One agent under test: chat, status and fork by a fixed rhythm, and three files about it.

Iteration i is a fork if 7 divides it and there may be more of them, else a status if 5 divides it,
else a chat.  What fails is an event, and the test goes on; without money it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import utc_stamp
from holdfast.codec import Record, pretty
from holdfast.errors import Conflict, HoldfastError, OverBudget
from holdfast.text import clip, one_line

if TYPE_CHECKING:
    from holdfast.store.backend import Backend

FORK_EVERY, STATUS_EVERY = 7, 5
MOST_ITERATIONS = 50_000
_SHOWN, _LAST = 80, 3


class Subject(NamedTuple):
    """The agent, and what can be done with it."""

    name: str
    model: str
    say: Callable[[str], str]
    fork: Callable[[str], str]
    """Make a child with a note; its name."""
    lines: Callable[[], tuple[int, int]]
    """Of memory.jsonl and events.jsonl."""


class Plan(NamedTuple):
    iterations: int = MOST_ITERATIONS
    seconds: float = float("inf")
    max_forks: int = 3


def test(
    home: Backend,
    folder: str,
    subject: Subject,
    plan: Plan,
    progress: Callable[[int, int], None] | None = None,
) -> Record:
    """Run the test; its document, which is written too when the test is interrupted."""
    clock = home.clock
    start, began = clock.now(), clock.boottime()
    counts = {"chat": 0, "fork": 0, "status": 0, "errors": 0}
    events: list[Record] = []
    money = True
    try:
        while len(events) < plan.iterations and clock.boottime() - began < plan.seconds and money:
            try:
                event = _step(subject, len(events) + 1, counts, plan.max_forks)
            except HoldfastError as error:
                event = {"type": "error", "error": error.message}
                money = not isinstance(error, OverBudget)
            # Not by the wall clock, which may be set meanwhile.
            events.append({"t": round(start + clock.boottime() - began, 6), **event})
            counts["errors" if event["type"] == "error" else event["type"]] += 1
            if progress is not None:
                progress(len(events), plan.iterations)
    finally:
        end = start + clock.boottime() - began
        run: Record = {
            "agent_id": subject.name,
            "start_ts": round(start, 6),
            "end_ts": round(end, 6),
            "elapsed_sec": round(round(end, 6) - round(start, 6), 6),
            "counts": counts,
            "events": events,
        }
        run = _write(home, folder, home.mask(run), subject.model)
    return run


def _step(subject: Subject, iteration: int, counts: Record, max_forks: int) -> Record:
    if iteration % FORK_EVERY == 0 and counts["fork"] < max_forks:
        child = subject.fork(f"fork from test iteration {iteration}")
        return {"type": "fork", "child_id": child}
    if iteration % STATUS_EVERY == 0:
        memory, events = subject.lines()
        return {"type": "status", "tail_mem": memory, "tail_ev": events}
    prompt = f"Tick {iteration}: run health check and echo counters={counts}"
    return {"type": "chat", "prompt": prompt, "reply": subject.say(prompt)}


def _write(home: Backend, folder: str, run: Record, model: str) -> Record:
    """Under a name that no other test has; the document last, so that its files are there."""
    stamp = "".join(char for char in utc_stamp(run["start_ts"]) if char.isdigit())
    stem = f"{folder}/test_run_{stamp[:8]}-{stamp[8:]}"
    log = "".join(f"{line}\n" for line in _log(run, model)).encode()
    for number in count(2):
        try:
            home.document(f"{stem}.log").replace(log, expected="")
            break
        except Conflict:
            stem = f"{stem.partition('.')[0]}.{number}"
    run["logs"] = {kind: f"{stem}.{kind}" for kind in ("txt", "json", "log")}
    home.document(f"{stem}.txt").replace("\n".join(_summary(run, model)).encode())
    home.document(f"{stem}.json").replace(pretty(run))
    return run


def _log(run: Record, model: str) -> Iterator[str]:
    yield f"{utc_stamp(run['start_ts'])} INFO test of {run['agent_id']} with {model}"
    for number, event in enumerate(run["events"], 1):
        level = "ERROR" if event["type"] == "error" else "INFO"
        fields = [(name, value) for name, value in event.items() if name not in ("t", "type")]
        said = "; ".join(f"{name}={clip(one_line(str(value)), _SHOWN)}" for name, value in fields)
        yield f"{utc_stamp(event['t'])} {level} {event['type']}[{number}] {said}"
    yield f"{utc_stamp(run['end_ts'])} INFO end after {run['elapsed_sec']:.3f} s: {_counted(run)}"


def _summary(run: Record, model: str) -> Iterator[str]:
    yield f"Test run of {run['agent_id']}"
    yield f"Model: {model}"
    yield f"Duration: {run['elapsed_sec']:.3f} s"
    yield f"Counts: {_counted(run)}"
    for name, path in run["logs"].items():
        yield f"{name}: {path}"
    chats, failed = ([e for e in run["events"] if e["type"] == kind] for kind in ("chat", "error"))
    yield from (f"\n> {event['prompt']}\n{event['reply']}" for event in chats[-_LAST:])
    yield from (f"\nerror: {event['error']}" for event in failed[:_LAST])


def _counted(run: Record) -> str:
    counts: dict[str, Any] = run["counts"]
    return ", ".join(f"{name} {number}" for name, number in counts.items())
