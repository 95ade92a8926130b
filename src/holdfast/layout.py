"""The directory tree is an API: this is where every path of a tree gets its name.

A `Layout` has one template for each part of a tree; `*` in it stands for the name of an agent, a
job or a topic.  `holdfast` is the tree that we make.  The other presets are trees that other
systems made, so that the same verbs work on them where they lie.  Pure: it names and recognises
paths, it opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from holdfast.errors import BadName, ConfigError, UsageError
from holdfast.ids import agent_id, key_parts

Part = Literal[
    "agent",
    "manifest",
    "report",
    "session",
    "metrics",
    "status",
    "tasks",
    "notes",
    "inbox",
    "journal",
    "conversation",
    "turns",
    "events",
    "topics",
    "fmm",
    "ledger",
    "summaries",
    "stops",
    "flags",
    "index",
    "queue",
    "jobs",
    "job",
    "swarms",
    "runs",
    "campaign",
]


def _files_in(folder: str) -> dict[Part, str]:
    """The files of one agent, all in its folder."""
    return {
        "agent": folder,
        "manifest": f"{folder}/manifest.json",
        "report": f"{folder}/report.json",
        "session": f"{folder}/session.json",
        "metrics": f"{folder}/metrics.json",
        "status": f"{folder}/status.json",
        "tasks": f"{folder}/tasks.json",
        "notes": f"{folder}/memory.md",
        "inbox": f"{folder}/inbox",
        "journal": f"{folder}/journal.jsonl",
        "conversation": f"{folder}/memory.jsonl",
        "turns": f"{folder}/turns.json",
        "events": f"{folder}/events.jsonl",
        "topics": f"{folder}/topics.jsonl",
        "fmm": f"{folder}/fmm.json",
    }


class Slot(NamedTuple):
    """What a path is in a tree."""

    part: Part
    name: str
    """The agent, job or topic, as the path spells it; empty if there is none."""
    rest: str
    """The path below the part; empty for the part itself."""


class Layout(NamedTuple):
    name: str
    paths: Mapping[Part, str]
    known_by: tuple[Part, ...] = ()
    """The parts that show that there is an agent."""
    writable: bool = True
    """Whether verbs may change such a tree where it lies."""

    def path(self, part: Part, name: str = "") -> str:
        """Where a part is; `name` as the tree spells it."""
        template = self.paths.get(part)
        if template is None:
            raise ConfigError(
                f"a tree of {self.name} has no {part}",
                hint="leave --layout out to work with a home of Holdfast's own",
            )
        if "*" not in template:
            return template
        if len(key_parts(name)) != 1:
            raise BadName(f"not one name: {name[:80]!r}", hint="a name has no / in it")
        return template.replace("*", name)

    def ledger(self, agent: str) -> str:
        """The log of what an agent did, one file a day."""
        return self.path("ledger", agent_id(agent).lower())

    def status(self, agent: str) -> str:
        return self.path("status", agent_id(agent).lower())

    def manifest(self, agent: str) -> str:
        return self.path("manifest", agent_id(agent).lower())

    def agent(self, agent: str) -> str:
        """The folder that an agent has for itself."""
        return self.path("agent", agent_id(agent).lower())

    def above(self, part: Part) -> str:
        """The folder in which every agent has its own; empty for the top of the tree."""
        return self.paths[part].partition("*")[0].rstrip("/")

    def agents_in(self, keys: Sequence[str]) -> set[str]:
        """The names of agents, as the keys of files spell them."""
        names: set[str] = set()
        for template in (self.paths[part] for part in self.known_by):
            found = filter(None, map(_pattern(template).fullmatch, keys))
            # A folder counts by what is in it, a file by itself.
            names |= {match["name"] for match in found if match["rest"] or "." in template}
        return names

    def slot(self, path: str) -> Slot | None:
        """What a file of such a tree is; None if it is no part of it."""
        for part, template in sorted(self.paths.items(), key=lambda each: -len(each[1])):
            match = _pattern(template).fullmatch(path)
            if match is not None:
                name = match["name"] if "*" in template else ""
                return Slot(part, name, match["rest"] or "")
        return None


@lru_cache(maxsize=128)
def _pattern(template: str) -> re.Pattern[str]:
    before, star, behind = template.partition("*")
    name = "(?P<name>[^/]+)" if star else ""
    return re.compile(re.escape(before) + name + re.escape(behind) + "(?:/(?P<rest>.+))?")


_OF_SWARMS: dict[Part, str] = {
    **_files_in("state/*"),
    "ledger": "ledger/*",
    "index": "state/index.json",
    "runs": "logs",
}
HOLDFAST = Layout(
    name="holdfast",
    paths={
        **_OF_SWARMS,
        "summaries": "memory/*/sessions",
        "queue": "jobs/queue.jsonl",
        "jobs": "jobs/index.json",
        "job": "jobs/*",
        "swarms": "swarms",
        "campaign": "improve/*",
    },
    known_by=("ledger", "agent"),
)
TELEO = Layout(
    name="teleo",
    paths={**_files_in("*"), "ledger": "*/ledger", "stops": "ops/sessions", "flags": "collective"},
    known_by=("report", "tasks", "session", "notes", "journal", "metrics", "inbox", "ledger"),
)
LUKA = Layout(
    name="luka",
    paths={**_files_in("agents/*"), "ledger": "g/ledger/*", "summaries": "memory/*/sessions"},
    known_by=("ledger", "status"),
)
QJSON = Layout(name="qjson", paths=_OF_SWARMS, known_by=("ledger", "agent"))
LOGIST = Layout(name="logist", paths={"jobs": "jobs_index.json", "job": "*"}, writable=False)
OMC = Layout(name="omc", paths={"campaign": "self-improve/topics/*"}, writable=False)
PRESETS = {each.name: each for each in (HOLDFAST, TELEO, LUKA, QJSON, LOGIST, OMC)}


def preset(name: str) -> Layout:
    """The layout called `name`."""
    if found := PRESETS.get(name):
        return found
    raise UsageError(f"no layout is called {name[:80]!r}", hint=f"one of {', '.join(PRESETS)}")


# --- files of ours in every tree ------------------------------------------------------------

CACHE = "cache"
"""The folder of what can be made again."""
SPEND = "spend"
"""The book of money reserved and spent, one file a day."""
SPENT = "state/spend.json"
"""Its view."""
ALERTS = "alerts"
"""Alerts, one file a day."""
ALERTED = "state/alerts.json"
"""Its view: what is not over."""
JOB_FILES, JOB_LINK = ".files", "workspace"
"""In the folder of a job: what agents work on, hidden from the store; and the link to it."""
_OF_AGENTS = re.compile(
    rf"jobs/[^/]+/(?:{re.escape(JOB_FILES)}|{JOB_LINK})|{CACHE}/sessions/[^/]+/.+"
    rf"|improve/.+/{re.escape(JOB_FILES)}"
)


def is_scratch(key: str) -> bool:
    """Whether a place of a home holds files that agents make, which no record describes."""
    return _OF_AGENTS.fullmatch(key) is not None


ROUTER_WEIGHTS = "state/router_weights.json"
"""How much more, or less, the router of swarms likes each agent."""
AUDIT = "audit"
"""Rules that were broken, and other odd things, one file a day."""


def told(agent: str) -> str:
    """How far the ledger has been told of the journal: made again when it is lost."""
    return f"{CACHE}/told/{agent_id(agent).lower()}.json"


def retold(agent: str, to: str) -> str:
    """How far a log has been told of the conversation: made again when it is lost."""
    return f"{CACHE}/retold/{agent_id(agent).lower()}.{to}.json"


def charged(agent: str) -> str:
    """How far the book of money has been told of the journal: made again when it is lost."""
    return f"{CACHE}/charged/{agent_id(agent).lower()}.json"


def scratch(session: str, name: str) -> str:
    """A file for the time of a session, such as the context of its command."""
    return f"{CACHE}/sessions/{session}/{name}"
