"""Days of agents, made by a seed: 200 sessions of ledger lines, turns, data and jobs, with facts.

Each fact is said once, in one place, among lines that mention the same things.  Of every question
there are two wordings by hand: one with the words of the fact, one with none of them.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.frame import Setup
from holdfast.clock import utc_stamp
from holdfast.codec import Record
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
Thing = tuple[str, str]
"""Its name, and another one that shares no word with it."""
THINGS: list[Thing] = [
    (name, alias) for name, _, alias in (x.partition("|") for x in _THINGS.split("\n") if x)
]
_PEOPLE = """
Ana Ben Cleo Dirk Elif Finn Gwen Hugo Ines Jan Karin Lars Mona Nils Olga Paul Qing Rosa Sven Tara
Umut Vera Wim Yara"""
PEOPLE = _PEOPLE.split()


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
_SAID_VALUES = """
machine: zeus,hera,ares,hermes,juno,mars,vesta,ceres,pluto,diana
release: 1.2,1.9,2.0,2.4,3.1,3.3,4.0,4.7,5.2,6.1
euros: 12,19,25,48,60,75,90,120,240,310
restarts: Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday
requests: 150,300,450,800,900,1200,1600,2100,3000,4500
written: Go,Rust,Python,Java,Kotlin,Elixir,Swift,Haskell
manual: docs/ops,share/guides,wiki/runbooks,papers/old,handbook/two
failed: a full disk,a stale lock,an old certificate,a lost packet,a typo
"""
_VALUES: dict[str, list[str]] = {
    name: [*map(str, values.strip().split(","))]
    for name, found, values in (line.partition(":") for line in _SAID_VALUES.split("\n"))
    if found
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


class Asked(NamedTuple):
    kind: str
    agent: str
    """Whose memory is asked; empty for all."""
    text: str
    other_words: bool
    evidence: tuple[str, ...]
    stale: tuple[str, ...] = ()
    """What the evidence corrects."""


class Later(NamedTuple):
    """A fact that will be corrected."""

    wording: Wording
    thing: Thing
    id: str
    value: str


class Days(NamedTuple):
    said: list[Said]
    asked: list[Asked]
    forgotten: list[Asked]
    """Questions for facts that were forgotten again; the evidence must not be found."""
    sessions: int


def write(home: Home, setup: Setup) -> Days:
    """Write the logs of a home, and say what can be asked."""
    maker = _Maker(home, setup)
    for agent in AGENTS:
        maker.live(agent)
    maker.jobs()
    return Days(maker.said, maker.asked, maker.forgotten, maker.sessions * len(AGENTS))


class _Maker:
    """Writes days, and keeps what was said in them and what can be asked."""

    def __init__(self, home: Home, setup: Setup) -> None:
        self._home, self._rng = home, setup.rng("days")
        self.sessions = int(setup.pick(SESSIONS_EACH, 4))
        self._things = THINGS[: int(setup.pick(len(THINGS), 6))]
        self._forgets = int(setup.pick(20, 3))
        self.said, self.asked, self.forgotten = list[Said](), list[Asked](), list[Asked]()

    def live(self, agent: str) -> None:
        """All days of an agent."""
        log, rng = _Logs(self._home, agent, self.said), self._rng
        plans = self._plans()
        owners = dict(zip(self._things, rng.sample(PEOPLE, len(self._things)), strict=True))
        share, later = -(-len(plans) // self.sessions), list[Later]()
        for number in range(self.sessions):
            now = BEGAN + (number + rng.random() / 2) * DAY
            session = f"{utc_stamp(now)[:10]}_{agent}_{number:03d}"
            for _ in range(20):
                thing, person = rng.choice(self._things)[0], rng.choice(PEOPLE)
                noise = rng.choice(_NOISE).format(e=thing, p=person)
                log.anywhere(rng.choice(("turn", "ledger")), noise, session, now)
            for _, kind, wording, thing in plans[number * share : (number + 1) * share]:
                if kind == "update":
                    before = self._value(wording)
                    text = wording.said.format(e=thing[0], v=before)
                    later.append(Later(wording, thing, log.topic(text, session, now), before))
                    continue
                person = owners[thing] if kind == "two sessions" else rng.choice(PEOPLE)
                filled = self._value(wording) if kind == "fact" else person
                text = wording.said.format(e=thing[0], v=filled)
                where = rng.choice(("topic", "turn", "ledger"))
                ids = [log.anywhere(where, text, session, now)]
                if kind == "two sessions":
                    text = ROOM.format(v=person, r=rng.randrange(100, 400))
                    where = rng.choice(("topic", "turn"))
                    ids.append(log.anywhere(where, text, f"{session}b", now + DAY))
                self._ask(kind, agent, wording, thing, ids)
        self._end(agent, log, later)
        log.close()

    def _plans(self) -> list[tuple[float, str, Wording, Thing]]:
        """What is to be said of each thing, in an order by chance."""
        plans: list[tuple[float, str, Wording, Thing]] = []
        kinds = {"two sessions": OWNER, "when": MOVED, "who decided": DECIDED}
        for thing in self._things:
            plans += [(self._rng.random(), "update", each, thing) for each in CHANGING]
            plans += [(self._rng.random(), "fact", each, thing) for each in FIXED]
            plans += [(self._rng.random(), kind, each, thing) for kind, each in kinds.items()]
        return sorted(plans)

    def _end(self, agent: str, log: _Logs, later: list[Later]) -> None:
        """Correct what changed, and forget some."""
        end, session = BEGAN + (self.sessions + 1) * DAY, f"{agent}-corrections"
        for wording, thing, old, before in later:
            new = self._rng.choice([each for each in _values(wording) if each != before])
            text = wording.said.format(e=thing[0], v=new)
            id = log.topic(text, session, end, supersedes=old)
            self._ask("update", agent, wording, thing, [id], stale=(old,))
        ids = list[str]()
        for thing in self._things:
            self._ask("never happened", agent, NEVER, thing, [])
        for name, _ in self._things[: self._forgets]:
            text = f"The spare key of the {name} is with {self._rng.choice(PEOPLE)}"
            ids.append(log.topic(text, session, end))
            question = f"Who has the spare key of the {name}?"
            self.forgotten.append(Asked("forgotten", agent, question, False, (ids[-1],)))
        log.forget(ids)

    def jobs(self) -> None:
        """Facts that stand in the history of a job alone."""
        for number, thing in enumerate(self._things):
            text = FAILED.said.format(e=thing[0], v=self._value(FAILED))
            log = self._home.log(f"jobs/fix-{number}/history.jsonl")
            line = {"event": "judged", "summary_for_supervisor": text, "sequence": 1}
            id = f"{log.key}#{log.append(line).seq}"
            log.close()
            self.said.append(Said(id, "", text))
            self._ask("fact", "", FAILED, thing, [id])

    def _value(self, wording: Wording) -> str:
        return self._rng.choice(_values(wording))

    def _ask(
        self,
        kind: str,
        agent: str,
        wording: Wording,
        thing: Thing,
        ids: list[str],
        stale: tuple[str, ...] = (),
    ) -> None:
        other = self._rng.random() < 1 / 3
        text = (wording.other if other else wording.same).format(e=thing[0], a=thing[1])
        self.asked.append(Asked(kind, agent, text, other, tuple(ids), stale))


def _values(wording: Wording) -> list[str]:
    return next(_VALUES[name] for name in _VALUES if name in wording.said.split())


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
            return self._note(f"{self._turns.key}#{self._turns.append(line).seq}", text)
        line: Record = {"event": "info", "summary": text, "session_id": session, "data": {}}
        return self._note(f"{self._ledger.key}#{self._ledger.append(line).seq}", text)

    def topic(self, text: str, session: str, ts: float, **known: str) -> str:
        id = self._topics.add("days", text, ts=ts, meta={"session_id": session}, **known)
        return self._note(id, text)

    def _note(self, id: str, text: str) -> str:
        self._said.append(Said(id, self._agent, text))
        return id

    def forget(self, ids: list[str]) -> None:
        self._topics.forget(ids)

    def close(self) -> None:
        self._topics.close()
        self._turns.close()
        self._ledger.close()
