"""A campaign's place, its journal, and the state that the lines of that make.

`journal.jsonl` is the truth; every other file is made from it.  An effect is an intent and what
came of it: a round that was cut off is run again from its start, and each step that is done gives
its recorded result.  Light: verbs that only look at a campaign import nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.codec import Record, pretty
from holdfast.errors import BadName, Busy, LeaseLost, NotFound
from holdfast.state.statelog import StateLog
from holdfast.store.backend import Backend
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Decision, Held, Line, Written
from holdfast.store.view import Shape

State = dict[str, Any]
Decide = Callable[[State], Sequence[Record]]
RUNNING, IDLE = "running", "idle"
MOST_CACHED = 2_000
_SESSION = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,255}")


class Place(NamedTuple):
    """Where a campaign is in a home."""

    root: str
    """`improve/SLUG`, or `improve/SLUG/sessions/ID`."""
    slug: str
    session: str | None = None

    @property
    def name(self) -> str:
        return f"{self.slug}@{self.session}" if self.session else self.slug

    def key(self, path: str) -> str:
        return f"{self.root}/{path}"


def place_of(name: str | None, session: str | None = None) -> Place:
    """The place of a campaign by the text that names it: any topic, or `SLUG@SESSION`."""
    topic, at, given = (name or "default").partition("@")
    session = session or (given if at else None) or None
    slug = slugify(topic)
    if session is None:
        return Place(f"improve/{slug}", slug)
    if not _SESSION.fullmatch(session):
        raise BadName(
            f"not a session id: {session[:80]!r}",
            hint="1 to 256 of A-Z a-z 0-9 _ -, starting with a letter or digit",
        )
    return Place(f"improve/{slug}/sessions/{session}", slug, session)


def slugify(text: str) -> str:
    """A topic as the name of a folder: `Café crème` is `cafe-creme`."""
    plain = "".join(
        each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each)
    )
    plain = re.sub(r"[^A-Za-z0-9 _-]", " ", plain).strip().lower()
    return re.sub(r"-+", "-", re.sub(r"[\s_]+", "-", plain)).strip("-")[:64].strip("-") or "default"


def goal_slug(objective: str, place: Place) -> str:
    """The name behind `improve/` of its branch: the objective, else the topic."""
    words = slugify(objective)[:40].strip("-") if objective.strip() else place.slug
    slug = words.replace("-", "_")
    return f"{slug}_{place.session}" if place.session else slug


def campaigns(home: Backend) -> list[Place]:
    """Every campaign of a home, by name."""
    found: list[Place] = []
    for slug in home.names("improve"):
        if home.version(f"improve/{slug}/journal.jsonl"):
            found.append(Place(f"improve/{slug}", slug))
        for session in home.names(f"improve/{slug}/sessions"):
            found.append(Place(f"improve/{slug}/sessions/{session}", slug, session))
    return found


# --- the state ------------------------------------------------------------------------------


def initial() -> State:
    return {
        "campaign": "",
        "created": None,
        "updated": None,
        "fence": 0,
        "settings": {},
        "goal": "",
        "harness": "",
        "goal_slug": "",
        "branch": "",
        "trusted": [],
        "base": None,
        "head": None,
        "baseline": None,
        "best": None,
        "best_subs": {},
        "best_round": 0,
        "phase": None,
        "status": IDLE,
        "why": None,
        "stopping": False,
        "finalized": None,
        "iterations": 0,
        "plateau": 0,
        "breaker": 0,
        "round": None,
        "rounds": [],
        "rows": [],
        "events": [],
        "ideas": [],
        "evaluations": 0,
        "calls": 0,
        "cost_usd": 0.0,
        "unknown": 0,
        "assumed_usd": 0.0,
        "tokens": 0,
        "elapsed": 0.0,
        "population": [],
        "cache": {},
        "control": {"n": 0, "best": None, "why": None},
    }


def fold(state: State, line: Line) -> State:
    """In place; what is no line of ours, or of an engine that was replaced, changes nothing."""
    record = line.record
    event, fence = record.get("event"), record.get("fence", 0)
    act = _ACTS.get(event) if isinstance(event, str) else None
    if act is None or not isinstance(fence, int) or 0 < fence < state["fence"]:
        return state
    state["fence"] = max(fence, state["fence"])
    state["updated"] = record.get("ts", state["updated"])
    act(state, record)
    return state


def _campaign(state: State, record: Record) -> None:
    kept = ("campaign", "settings", "goal_slug", "branch", "base", "goal", "harness", "phase")
    state |= {name: record[name] for name in kept} | {"head": record["base"]}
    state["created"] = record["ts"]


def _trusted(state: State, record: Record) -> None:
    state["trusted"] = [*state["trusted"], record["digest"]]


def _baseline(state: State, record: Record) -> None:
    kept = ("score", "sub_scores", "sd", "runs", "seconds", "scores", "recorded_at", "screen")
    state["baseline"] = {name: record[name] for name in kept}
    state["evaluations"] += record["runs"]
    state |= {"best": record["score"], "best_subs": record["sub_scores"]}


def _changed(state: State, record: Record) -> None:
    field = record["field"]
    if field == "current_phase":
        state["phase"] = record["new"]
    elif field in ("goal", "harness"):
        state[field] = record["new"]
        return
    else:
        state["settings"] = {**state["settings"], field: record["new"]}
    details = {"field": field, "old_value": record["old"], "new_value": record["new"]}
    kind = "phase_transition" if field == "current_phase" else "config_change"
    event: Record = {"timestamp": record["ts"], "event_type": kind}
    event |= {"iteration": state["iterations"]}
    state["events"].append({**event, "details": {**details, "source": record["source"]}})


def _idea(state: State, record: Record) -> None:
    state["ideas"].append(record["text"])


def _status(state: State, record: Record) -> None:
    state |= {"status": record["status"], "why": record.get("why"), "stopping": False}
    if record.get("anew"):
        state |= {"plateau": 0, "breaker": 0}


def _stop(state: State, record: Record) -> None:
    state["stopping"] = True


def _moved(state: State, record: Record) -> None:
    """The user moved the branch: what it has now is what is to be improved."""
    state["head"] = record["head"]
    state |= {"best": record["score"], "best_subs": record["sub_scores"]}
    state["evaluations"] += 1


def _round(state: State, record: Record) -> None:
    kept = ("number", "seed", "planners", "ideas", "head")
    state["round"] = {name: record[name] for name in kept}
    state["round"] |= {"started": record["ts"], "updated": record["ts"], "step": "research"}
    state["round"] |= {"results": {}, "open": {}, "ended": None}
    state["ideas"] = [each for each in state["ideas"] if each not in record["ideas"]]


def _intent(state: State, record: Record) -> None:
    one = state["round"]
    if one is None:
        return
    one |= {"step": record["phase"], "updated": record["ts"]}
    one["open"] |= record["steps"]


def _lost(state: State, record: Record) -> None:
    """A process died while a model was asked: it may have been answered and paid."""
    asked: Mapping[str, Record] = state["round"]["open"] if state["round"] else {}
    for args in asked.values():
        if args.get("charge") == record["charge"]:
            state["unknown"] += 1
            state["assumed_usd"] += args["reserved_usd"] or 0.0


def _done(state: State, record: Record) -> None:
    one, result = state["round"], record["result"]
    if one is None:
        return
    asked = one["open"].pop(record["step"], {})
    one["results"][record["step"]] = result
    one["updated"] = record["ts"]
    state["evaluations"] += record.get("evaluations", 0)
    if "cached" in record and len(state["cache"]) < MOST_CACHED:
        state["cache"][record["cached"]] = {**result, "raw": ""}
    if "paid" in record:
        state["calls"] += 1
        state["tokens"] += record["paid"].get("tokens") or 0
        cost = record["paid"].get("cost_usd")
        state["cost_usd"] += cost or 0.0
        if cost is None:
            state["unknown"] += 1
            state["assumed_usd"] += asked.get("reserved_usd") or 0.0


def _ended(state: State, record: Record) -> None:
    one = state["round"]
    kept = ("iterations", "best", "best_subs", "best_round", "plateau", "breaker", "head")
    state |= {name: record[name] for name in (*kept, "population")}
    state["rows"] += record["rows"]
    state["rounds"].append(record["summary"])
    state["elapsed"] += record["summary"]["seconds"]
    if one is not None:
        one["ended"] = {"history": record["history"], "report": record["report"]}
        one |= {"step": "stop_check", "open": {}, "updated": record["ts"]}


def _finalized(state: State, record: Record) -> None:
    kept = ("branch", "commit", "holdout", "ts")
    state["finalized"] = {name: record[name] for name in kept}


def _control(state: State, record: Record) -> None:
    """An evaluation of the random search that the result is compared with."""
    known, score = state["control"], record["score"]
    if record["why"] is not None:
        state["control"] = {**known, "why": record["why"]}
        return
    higher = state["settings"].get("benchmark_direction") != "lower_is_better"
    scores = [each for each in (known["best"], score) if each is not None]
    best = (max if higher else min)(scores, default=None)
    state["control"] = {"n": known["n"] + 1, "best": best, "why": None}


_ACTS: dict[str, Callable[[State, Record], None]] = {
    "campaign": _campaign,
    "trusted": _trusted,
    "baseline": _baseline,
    "changed": _changed,
    "idea": _idea,
    "status": _status,
    "stop": _stop,
    "moved": _moved,
    "round": _round,
    "intent": _intent,
    "lost": _lost,
    "done": _done,
    "ended": _ended,
    "finalized": _finalized,
    "control": _control,
}


def agent_settings(state: State) -> Record:
    """What the loop keeps about itself, as documented."""
    whole = state["baseline"] is not None
    return {
        "trust_confirmed": bool(state["trusted"]),
        "si_setting_goal": bool(state["campaign"]),
        "si_setting_benchmark": whole,
        "si_setting_harness": bool(state["campaign"]),
        "iterations": state["iterations"],
        "best_score": state["best"],
        "current_milestone": None,
        "current_phase": state["phase"],
        "plateau_consecutive_count": state["plateau"],
        "circuit_breaker_count": state["breaker"],
        "status": state["status"],
        "goal_slug": state["goal_slug"] or None,
    }


SHAPE: Shape[State] = Shape(
    version=1, initial=initial, fold=fold, render=lambda state: pretty(agent_settings(state))
)
JOURNAL, AGENT_SETTINGS = "journal.jsonl", "state/agent-settings.json"


class Journal:
    """The journal of one campaign; used by one thread at a time."""

    def __init__(self, home: Backend, place: Place) -> None:
        self.home, self.place = home, place
        self.lines = StateLog(
            home, place.key(JOURNAL), SHAPE, {place.key(AGENT_SETTINGS): SHAPE.render}
        )
        self._lease = home.lease(place.key("engine"))
        self.fence = 0
        """Of the lease, as long as this process has it."""
        self.state = self.lines.state
        """After every line; look at it, do not change it."""
        self.known = self.lines.known
        """After every line that was read or written here."""

    def write(self, *records: Record) -> Written[None]:
        return self.decide(lambda _: records)

    def decide(self, decide: Decide) -> Written[None]:
        """Write what `decide` makes of the state, with no other line in between."""

        def lines(state: State) -> Decision[None]:
            if 0 < self.fence < state["fence"]:
                raise LeaseLost(
                    f"another process runs {self.place.name} now",
                    hint="this one was frozen for too long; what it did since is not recorded",
                )
            return [{**each, "fence": self.fence} for each in decide(state)], None

        hit("improve.writing")
        written = self.lines.decide(lines)
        hit("improve.written")
        return written

    def check_exists(self) -> State:
        """The state; NotFound if there is no such campaign."""
        state = self.state()
        if not state["campaign"]:
            raise NotFound(
                f"no such campaign: {self.place.name}", hint="`holdfast improve list` shows them"
            )
        return state

    # -- files beside it ---------------------------------------------------------------

    def data(self, path: str) -> bytes | None:
        found = self.home.document(self.place.key(path)).read()
        return None if found is None else found.data

    def text(self, path: str) -> str:
        """What a file of the campaign holds; empty if there is none."""
        return (self.data(path) or b"").decode("utf-8", "replace")

    def put(self, path: str, text: str) -> None:
        document = self.home.document(self.place.key(path))
        document.replace(text.encode("utf-8", "replace"))
        document.close()

    # -- owning ------------------------------------------------------------------------

    def own(self) -> None:
        """Be the process that runs it; Busy naming the other one."""
        try:
            self.fence = self._lease.acquire(f"improve {self.place.name}")
        except Busy as error:
            held = self.holder()
            by = f"process {held.owner.pid} since {held.since}" if held else "another process"
            raise Busy(
                f"{self.place.name} is run by {by}",
                hint=f"wait for it, or `holdfast improve stop {self.place.name}`",
                path=error.path,
            ) from None

    def holder(self) -> Held | None:
        """The process that runs it, if it lives."""
        held = self._lease.holder()
        return held if held is not None and held.alive else None

    def disown(self) -> None:
        self._lease.release()
        self.fence = 0

    def close(self) -> None:
        self.lines.close()
        self._lease.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def results(state: State, prefix: str) -> dict[str, Any]:
    """What the steps of the round under way gave whose names begin so, by the rest of the name."""
    found: Mapping[str, Any] = state["round"]["results"] if state["round"] else {}
    return {
        name.removeprefix(prefix): found[name] for name in sorted(found) if name.startswith(prefix)
    }
