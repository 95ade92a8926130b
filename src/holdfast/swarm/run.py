"""One run as one handle: its log, the state that makes, and its document.

`swarms/RUN.jsonl` is the run.  A tick is one write: what was said in it, that it is whole, and who
is asked next.  `logs/cluster_run_RUN.json` is made of the log, in the documented shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.clock import utc_stamp
from holdfast.codec import Record, encode
from holdfast.errors import BadName, Busy, Conflict, Corrupt, LeaseLost, NotFound
from holdfast.layout import HOLDFAST, Layout
from holdfast.state.statelog import StateLog
from holdfast.store.failpoints import hit
from holdfast.store.primitives import CONTROL, Decision, Held, Line, Written
from holdfast.swarm.spec import Spec, spec_of
from holdfast.swarm.state import EVENTS, RUNNING, SHAPE, State

if TYPE_CHECKING:
    from holdfast.store.home import Home

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_INNER = frozenset(
    ("event", "ts", "fence", "seq", "hash", "turn", "charge", "reserved_usd", "tokens")
)
"""Fields of a line that the document leaves out."""
Decide = Callable[[State], Sequence[Record]]


class Run:
    def __init__(self, home: Home, name: str, layout: Layout = HOLDFAST) -> None:
        if not _NAME.fullmatch(name):
            raise BadName(
                f"not a run: {name[:80]!r}",
                hint="1 to 64 of A-Z a-z 0-9 _ -, starting with a letter or digit",
            )
        self.name, self.home = name, home
        self.key = f"{layout.path('swarms')}/{name}"
        self.document = f"{layout.path('runs')}/cluster_run_{name}.json"
        self.lines = StateLog(home, f"{self.key}.jsonl", SHAPE, {f"{self.key}.json": SHAPE.render})
        self._lease = home.lease(self.key)
        self.fence = 0
        """Of the lease, as long as this process has it."""
        self.state = self.lines.state
        """After every line; look at it, do not change it."""
        self.known = self.lines.known
        """After every line that was read or written here."""

    # -- deciding ----------------------------------------------------------------------

    def create(self, spec: Spec, plan: Record) -> None:
        """Write the first lines; Conflict if there is a run of this name."""

        def decide(state: State) -> Sequence[Record]:
            if state["run"]:
                raise Conflict(f"run {self.name} already exists", hint="choose another --name")
            t = self.home.clock.now()
            first = {"event": "new", "run": self.name, "t": t, "spec": spec._asdict()}
            goal = {"event": "input_goal", "t": t, "text": spec.goal}
            return [first, goal, plan]

        self.decide(decide)

    def decide(self, decide: Decide) -> Written[None]:
        """Write what `decide` makes of the state, with no other line in between."""

        def lines(state: State) -> Decision[None]:
            if 0 < self.fence < state["fence"]:
                raise LeaseLost(
                    f"another process runs {self.name} now",
                    hint="this one was frozen for too long; what it did since is not recorded",
                )
            return decide(state), None

        written = self.lines.decide(lines)
        hit("swarm.written")
        return written

    def stamped(self, lines: Sequence[Record]) -> list[Record]:
        ts = utc_stamp(self.home.clock.now())
        return [{"ts": ts, **line, "fence": self.fence} for line in lines]

    def write(self, line: Record) -> None:
        self.decide(lambda _: self.stamped([line]))

    def stop(self, why: str) -> None:
        """Ask the process of the run to end it after this tick; a run without one stops now."""
        alone = self.holder() is None

        def decide(state: State) -> Sequence[Record]:
            lines = [{"event": event, "why": why} for event in ("stop", "halt")[: 1 + alone]]
            return lines if state["status"] == RUNNING else []

        self.decide(decide)

    # -- owning ------------------------------------------------------------------------

    def own(self) -> None:
        """Be the process that runs it; Busy naming the other one."""
        try:
            self.fence = self._lease.acquire(f"swarm run {self.name}")
        except Busy as error:
            held = self.holder()
            by = f"process {held.owner.pid} since {held.since}" if held else "another process"
            hint = f"wait for it, or end it: `holdfast swarm stop {self.name}`"
            raise Busy(f"{self.name} is run by {by}", hint=hint, path=error.path) from None
        self.lines.flush()

    def holder(self) -> Held | None:
        """The process that runs it, if it lives."""
        held = self._lease.holder()
        return held if held is not None and held.alive else None

    def disown(self) -> None:
        self._lease.release()
        self.fence = 0

    # -- reading -----------------------------------------------------------------------

    def check_exists(self) -> State:
        """The state; NotFound if there is no such run, Corrupt if its first line is damaged."""
        state = self.state()
        if not state["run"] and self.lines.log.head().seq:
            raise Corrupt(f"{self.key}.jsonl is damaged", hint="restore the file from a backup")
        if not state["run"]:
            raise NotFound(f"no such run: {self.name}", hint="`holdfast swarm list` shows runs")
        return state

    def status(self, state: State) -> str:
        """`interrupted` is a run whose process is gone."""
        gone = state["status"] == RUNNING and self.holder() is None
        return "interrupted" if gone else state["status"]

    def events(self) -> Iterator[Record]:
        """What happened in the whole ticks so far, as the document has it."""
        plan: Record = {}
        for line in self.lines.log.read():
            if not isinstance(line, Line) or CONTROL in line.record:
                continue
            record = line.record
            kind = record.get("event")
            if kind == "plan":
                plan = record
            elif kind in EVENTS or kind in ("input_goal", "error"):
                event = {"t": record.get("t"), "type": kind}
                event |= {name: record[name] for name in record if name not in _INNER}
                if kind == "moe":
                    event |= {"router_scores": plan.get("scores", {}), "reason": plan.get("reason")}
                yield event

    def show(self) -> None:
        """Write the document: as long as the log is, and never held in memory."""
        with closing(self.home.blob(self.document)) as blob:
            blob.put(self.chunks(self.known()))

    def chunks(self, state: State) -> Iterator[bytes]:
        """The document, piece by piece."""
        head = encode(document_head(state))
        yield head[:-1] + b',\n"events":[\n'
        for number, event in enumerate(self.events()):
            yield (b",\n" if number else b"") + encode(event)
        yield b"\n]}\n"

    def close(self) -> None:
        self.lines.close()
        self._lease.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def document_head(state: State) -> Record:
    """The document without its events."""
    spec = spec_of(state)
    return {
        "agents": list(spec.agents),
        "model": spec.model,
        "use_ollama": spec.model.partition(":")[0] == "ollama",
        "ticks": state["tick"],
        "elapsed_sec": round(state["elapsed"], 6),
        **{name: state[name] for name in ("counts", "run", "status", "why")},
        **{name: getattr(spec, name) for name in ("topology", "topk", "seed", "router")},
        "models": {agent: spec.model_of(agent) for agent in spec.agents},
        "summarizer": spec.summarizer,
        **{name: state[name] for name in ("aggregate", "baton", "tokens")},
        "cost_usd": round(state["cost_usd"], 9),
        "unknown_costs": state["unknown"],
        "compared_with": spec.compared_with or None,
    }


def run_names(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    """Every run, by name."""
    found = home.names(layout.path("swarms"))
    return sorted(filter(_NAME.fullmatch, {n.split(".")[0] for n in found if ".jsonl" in n}))
