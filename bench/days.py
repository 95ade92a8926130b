"""Days of agents, made by a seed: 200 sessions of ledger lines, turns, data and jobs, with facts.

Each fact is said once, in one place, among lines that mention the same things.  Of every question
there are two wordings by hand: one with the words of the fact, one with none of them.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.frame import Setup
from holdfast.clock import utc_stamp
from holdfast.memory.topics import Topics
from holdfast.store.home import Home

AGENTS = ("rio", "mia", "leo", "ada", "kim")
SESSIONS_EACH, DAY, BEGAN = 40, 86_400.0, 1_780_000_000.0
KINDS = ("fact", "update", "two sessions", "when", "who decided", "never happened")
_THINGS = """
billing service|invoicing backend
login page|sign-in screen
nightly backup|overnight archive
web shop|online store
mail server|message relay
search index|lookup catalogue
staging database|rehearsal data store
mobile app|phone client
build pipeline|CI workflow
payment gateway|card processor
customer portal|client website
image cache|picture buffer
report generator|statement writer
license checker|permit validator
weather feed|forecast stream
chat bot|talking assistant
file share|common drive
job queue|work backlog
audit trail|history record
warehouse scanner|barcode reader
pricing table|tariff list
help desk|support team
test laptop|trial notebook
coffee machine|espresso maker
"""
THINGS = [(name, alias) for name, _, alias in (x.partition("|") for x in _THINGS.split("\n") if x)]
PEOPLE = (
    "Ana Ben Cleo Dirk Elif Finn Gwen Hugo Ines Jan Karin Lars Mona Nils Olga Paul Qing Rosa Sven "
    "Tara Umut Vera Wim Yara"
).split()


class Wording(NamedTuple):
    said: str
    same: str
    other: str


CHANGING = (
    Wording("The {e} runs on machine {v}", "Which machine does the {e} run on?",
            "What computer hosts the {a}?"),
    Wording("We pinned the {e} to release {v}", "Which release did we pin the {e} to?",
            "What version is the {a} fixed at?"),
    Wording("The {e} costs {v} euros a month", "How many euros a month does the {e} cost?",
            "What do we pay for the {a}?"),
    Wording("The {e} restarts each {v}", "When does the {e} restart each week?",
            "On which day is the {a} rebooted?"),
    Wording("The {e} breaks above {v} requests", "Above how many requests does the {e} break?",
            "How much load can the {a} take?"),
)  # fmt: skip
FIXED = (
    Wording("The {e} is written in {v}", "What is the {e} written in?",
            "Which programming language was used for the {a}?"),
    Wording("The manual of the {e} lies in {v}", "Where does the manual of the {e} lie?",
            "Which folder has the instructions for the {a}?"),
)  # fmt: skip
OWNER = Wording("{v} looks after the {e}", "In which room sits who looks after the {e}?",
                "Where is the desk of the person responsible for the {a}?")  # fmt: skip
ROOM = "{v} sits in room {r}"
MOVED = Wording("Today we moved the {e} to the new rack", "When did we move the {e}?",
                "On what date was the {a} relocated?")  # fmt: skip
DECIDED = Wording("{v} decided to replace the {e}", "Who decided to replace the {e}?",
                  "Whose call was it to swap out the {a}?")  # fmt: skip
NEVER = Wording("{v} painted the {e} green", "Who painted the {e} green?",
                "Which person gave the {a} another colour?")  # fmt: skip
FAILED = Wording("The {e} failed because of {v}", "Why did the {e} fail?",
                 "What was the cause of the {a} outage?")  # fmt: skip
_VALUES = {
    "machine": "zeus hera ares hermes juno mars vesta ceres pluto diana".split(),
    "release": "1.2 1.9 2.0 2.4 3.1 3.3 4.0 4.7 5.2 6.1".split(),
    "euros": "12 19 25 48 60 75 90 120 240 310".split(),
    "restarts": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "requests": "150 300 450 800 900 1200 1600 2100 3000 4500".split(),
    "written": "Go Rust Python Java Kotlin Elixir Swift Haskell".split(),
    "manual": "docs/ops share/guides wiki/runbooks papers/old handbook/two".split(),
    "failed": "a full disk,a stale lock,an old certificate,a lost packet,a typo".split(","),
}
_NOISE = (
    "Looked at the {e} again and found nothing new",
    "Read what {p} wrote about the {e}",
    "The page of the {e} needs better pictures",
    "Asked {p} about lunch",
    "Waited for the tests of the {e}",
    "{p} is on holiday until the end of the week",
    "Renamed two variables near the {e}",
    "No change since the last look at the {e}",
    "The meeting with {p} was moved by an hour",
    "Wrote a summary of the day for {p}",
)


class Said(NamedTuple):
    """A text that was written somewhere."""

    id: str
    agent: str
    text: str
    ts: float


class Asked(NamedTuple):
    kind: str
    agent: str
    """Whose memory is asked; empty for all."""
    text: str
    other_words: bool
    evidence: tuple[str, ...]
    stale: tuple[str, ...] = ()
    """What the evidence corrects."""


class Days(NamedTuple):
    said: list[Said]
    asked: list[Asked]
    forgotten: list[Asked]
    """Questions for facts that were forgotten again; the evidence must not be found."""
    sessions: int


def write(home: Home, setup: Setup) -> Days:
    """Write the logs of a home, and say what can be asked."""
    rng = setup.rng("days")
    per_agent = int(setup.pick(SESSIONS_EACH, 4))
    things = THINGS if not setup.quick else THINGS[:6]
    said, asked, forgotten = list[Said](), list[Asked](), list[Asked]()
    logs = {agent: _Logs(home, agent, said) for agent in AGENTS}
    planned: list[tuple[int, int, Wording, tuple[str, str]]] = []

    def value(wording: Wording) -> str:
        key = next(name for name in _VALUES if name in wording.said.split())
        return rng.choice(_VALUES[key])

    def ask(kind: str, agent: str, wording: Wording, thing: tuple[str, str], *ids: str,
            stale: tuple[str, ...] = ()) -> Asked:  # fmt: skip
        other = rng.random() < 1 / 3
        text = (wording.other if other else wording.same).format(e=thing[0], a=thing[1])
        return Asked(kind, agent, text, other, ids, stale)

    for agent in AGENTS:
        log = logs[agent]
        plans: list[tuple[float, str, Wording, tuple[str, str]]] = []
        for thing in things:
            plans += [(rng.random(), "update", each, thing) for each in CHANGING]
            plans += [(rng.random(), "fact", each, thing) for each in FIXED]
            for kind, each in (("two sessions", OWNER), ("when", MOVED), ("who decided", DECIDED)):
                plans.append((rng.random(), kind, each, thing))
        plans.sort()
        owners = dict(zip(things, rng.sample(PEOPLE, len(things)), strict=True))
        share = -(-len(plans) // per_agent)
        later: list[tuple[Wording, tuple[str, str], str, str]] = []
        for number in range(per_agent):
            now = BEGAN + (number + rng.random() / 2) * DAY
            session = f"{utc_stamp(now)[:10]}_{agent}_{number:03d}"
            for _ in range(20):
                noise = rng.choice(_NOISE).format(e=rng.choice(things)[0], p=rng.choice(PEOPLE))
                log.anywhere(rng.choice(("turn", "ledger")), noise, session, now)
            for _, kind, wording, thing in plans[number * share : (number + 1) * share]:
                where = rng.choice(("topic", "turn", "ledger"))
                if kind == "update":
                    text = wording.said.format(e=thing[0], v=(old := value(wording)))
                    later.append((wording, thing, log.topic(text, session, now), old))
                    continue
                if kind == "two sessions":
                    one = log.anywhere(
                        where, wording.said.format(e=thing[0], v=owners[thing]), session, now
                    )
                    two = log.anywhere(
                        rng.choice(("topic", "turn")),
                        ROOM.format(v=owners[thing], r=rng.randrange(100, 400)),
                        session + "b",
                        now + DAY,
                    )
                    asked.append(ask(kind, agent, wording, thing, one, two))
                    continue
                filled = value(wording) if kind == "fact" else rng.choice(PEOPLE)
                text = wording.said.format(e=thing[0], v=filled)
                asked.append(
                    ask(kind, agent, wording, thing, log.anywhere(where, text, session, now))
                )
        end = BEGAN + (per_agent + 1) * DAY
        for wording, thing, old, before in later:
            new = next(v for v in iter(lambda: value(wording), "") if v != before)
            text = wording.said.format(e=thing[0], v=new)
            id = log.topic(text, f"{agent}-corrections", end, supersedes=old)
            asked.append(ask("update", agent, wording, thing, id, stale=(old,)))
        for thing in things:
            asked.append(ask("never happened", agent, NEVER, thing))
        for thing in things[: int(setup.pick(20, 3))]:
            text = f"The spare key of the {thing[0]} is with {rng.choice(PEOPLE)}"
            id = log.topic(text, session, end)
            question = f"Who has the spare key of the {thing[0]}?"
            forgotten.append(Asked("forgotten", agent, question, False, (id,)))
        log.forget([each.evidence[0] for each in forgotten if each.agent == agent])
    for number, thing in enumerate(things):
        text = FAILED.said.format(e=thing[0], v=value(FAILED))
        log = home.log(f"jobs/fix-{number}/history.jsonl")
        line = {"event": "judged", "summary_for_supervisor": text, "sequence": 1}
        id = f"{log.key}#{log.append(line).seq}"
        log.close()
        said.append(Said(id, "", text, BEGAN))
        asked.append(ask("fact", "", FAILED, thing, id))
    for log in logs.values():
        log.close()
    del planned
    return Days(said, asked, forgotten, per_agent * len(AGENTS))


class _Logs:
    """The logs of one agent."""

    def __init__(self, home: Home, agent: str, said: list[Said]) -> None:
        self._agent, self._said, self._topics = agent, said, Topics(home, agent)
        self._turns = home.log(f"state/{agent}/memory.jsonl")
        self._ledger = home.log(f"ledger/{agent}")

    def anywhere(self, where: str, text: str, session: str, ts: float) -> str:
        if where == "topic":
            return self.topic(text, session, ts)
        if where == "turn":
            meta = {"turn": f"{session}/{len(self._said)}", "session_id": session}
            line = {"ts": ts, "role": "user", "content": text, "meta": meta}
            return self._note(f"{self._turns.key}#{self._turns.append(line).seq}", text, ts)
        line = {"event": "info", "summary": text, "session_id": session, "data": {}}
        return self._note(f"{self._ledger.key}#{self._ledger.append(line).seq}", text, ts)

    def topic(self, text: str, session: str, ts: float, **known: str) -> str:
        id = self._topics.add("days", text, ts=ts, meta={"session_id": session}, **known)
        return self._note(id, text, ts)

    def _note(self, id: str, text: str, ts: float) -> str:
        self._said.append(Said(id, self._agent, text, ts))
        return id

    def forget(self, ids: list[str]) -> None:
        self._topics.forget(ids)

    def close(self) -> None:
        self._topics.close()
        self._turns.close()
        self._ledger.close()
