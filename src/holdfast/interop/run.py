"""One import: the tree of another system, agent after agent and job after job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from holdfast.clock import utc_stamp
from holdfast.codec import DecodeError, pretty
from holdfast.contracts.kinds import kind
from holdfast.errors import BadName, HoldfastError
from holdfast.ids import mapped_agent_id, session_id
from holdfast.interop import jobs, ledgers
from holdfast.interop.agents import Adoption, Flagged, Found, Stop
from holdfast.interop.copies import Foreign, Taken, errors_in, shown, value_in
from holdfast.interop.flags import Flag, NoFlag, flags_in
from holdfast.interop.recognise import Member, Recognised, owner_of
from holdfast.interop.tree import Tree
from holdfast.jobs.job import Job
from holdfast.jobs.queue import Queue
from holdfast.layout import HOLDFAST, LOGIST, LUKA
from holdfast.ledger.book import Ledger, agents
from holdfast.store.home import Home


class Row(NamedTuple):
    """What became of a file, for people."""

    agent: str | None
    part: str
    taken: Taken
    job: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "job": self.job,
            "part": self.part,
            "file": self.taken.path,
            "state": self.taken.outcome,
            "entries": self.taken.entries,
            "detail": self.taken.detail,
        }


class Import:
    """One import: the files of each agent together, agent after agent."""

    def __init__(self, home: Home, tree: Tree, found: Recognised, *, dry_run: bool) -> None:
        self._home, self._tree, self._dry_run = home, tree, dry_run
        self._layout, self._found = found.layout, found
        self.ignored = 0

    def rows(self) -> Iterator[Row]:
        if self._layout is LOGIST:
            yield from self._jobs()
            self.ignored = len(self._found.others)
            return
        yield from self._stops()
        by_name: dict[str, list[Member]] = defaultdict(list)
        for member in self._found.members:
            if member.slot.part not in ("stops", "flags"):
                by_name[self._name_of(member)].append(member)
        for name in sorted(by_name):
            bring = self._ledger if self._layout is LUKA else self._state
            yield from bring(name, by_name[name])
            self._keep_name(mapped_agent_id(name), name)
        yield from self._flags({mapped_agent_id(name) for name in by_name})
        yield from self._others(set(by_name))

    def _name_of(self, member: Member) -> str:
        """What the agent is called that a file belongs to."""
        slot = member.slot
        if slot.part != "ledger" or (slot.name and slot.rest):
            return slot.name
        try:
            return owner_of(self._tree, member, self._tree.read(member.file.path))
        except HoldfastError:
            return member.file.path.partition(".")[0]

    def _loaded(self, members: list[Member], troubles: list[Taken]) -> Iterator[Found]:
        """The files one after the other; what cannot be read goes to `troubles`."""
        for member in members:
            loaded = self._load(member)
            if isinstance(loaded, Taken):
                troubles.append(loaded)
            else:
                yield Found(member.slot.part, loaded)

    def _load(self, member: Member) -> Foreign | Taken:
        path = member.file.path
        if member.file.trouble:
            return Taken(path, "skipped", member.file.trouble)
        try:
            return Foreign(path, self._tree.read(path))
        except HoldfastError as error:
            return Taken(path, "skipped", error.message)

    def _keep_name(self, agent: str, name: str) -> None:
        """What the agent is called elsewhere, if it is called otherwise here."""
        if agent == name or self._dry_run:
            return
        document = self._home.document(HOLDFAST.manifest(agent))
        if document.read() is None:
            text = pretty({"agent_id": agent, "display_name": name})
            document.update(lambda old: old or text)

    # -- ledgers -----------------------------------------------------------------------

    def _ledger(self, name: str, members: list[Member]) -> Iterator[Row]:
        agent, troubles = mapped_agent_id(name), list[Taken]()
        parts = {member.file.path: member.slot.part for member in members}
        entries = [member for member in members if member.slot.part != "summaries"]
        files = (found.file for found in self._loaded(entries, troubles))
        with Ledger(self._home, agent) as ledger:
            for taken in ledgers.adopt(
                ledger, self._home, files, layout=self._layout.name, dry_run=self._dry_run
            ):
                yield Row(agent, parts[taken.path], taken)
        summaries = [member for member in members if member.slot.part == "summaries"]
        for found in self._loaded(summaries, troubles):
            yield Row(agent, "summaries", self._summary(agent, found.file))
        yield from (Row(agent, parts[trouble.path], trouble) for trouble in troubles)

    def _summary(self, agent: str, file: Foreign) -> Taken:
        name = file.path.rpartition("/")[2]
        try:
            session_id(name.removesuffix(".md"))
        except BadName:
            return Taken(file.path, "skipped", "its name is not that of a session")
        document = self._home.document(f"{HOLDFAST.path('summaries', agent)}/{name}")
        there = document.read()
        if there is not None:
            same = there.data == file.data
            reason = "the same text is there" if same else "the home has another one by now"
            return Taken(file.path, "known" if same else "skipped", reason)
        if not self._dry_run:
            document.update(lambda old: old or file.data)
        return Taken(file.path, "taken", "")

    # -- agents' state -----------------------------------------------------------------

    def _state(self, name: str, members: list[Member]) -> Iterator[Row]:
        adoption = Adoption(self._home, name, layout=self._layout.name, dry_run=self._dry_run)
        parts = {member.file.path: member.slot.part for member in members}
        troubles: list[Taken] = []
        files = list(self._loaded(members, troubles))
        for taken in (*adoption.take(files), *troubles):
            yield Row(adoption.agent, parts[taken.path], taken)

    def _stops(self) -> Iterator[Row]:
        by_id: dict[str, list[Stop]] = defaultdict(list)
        for member in self._found.members:
            if member.slot.part == "stops":
                stop = self._stop(member)
                if isinstance(stop, Stop):
                    by_id[stop.id].append(stop)
                else:
                    yield Row(None, "stops", stop)
        for id in sorted(by_id):
            adoption = Adoption(self._home, id, layout=self._layout.name, dry_run=self._dry_run)
            yield Row(adoption.agent, "stops", adoption.take_stops(by_id[id]))
            self._keep_name(adoption.agent, id)

    def _stop(self, member: Member) -> Stop | Taken:
        file = self._load(member)
        if isinstance(file, Taken):
            return file
        try:
            reading = kind("legacy-session").read(value_in(file))
        except DecodeError as error:
            return Taken(file.path, "skipped", str(error))
        if wrong := errors_in(reading):
            return Taken(file.path, "skipped", shown(wrong[:1]))
        return Stop(file, *(str(reading.value[name]) for name in ("id", "ended", "status")))

    def _flags(self, brought: set[str]) -> Iterator[Row]:
        """Flags go to agents that there are; for others the file lies where it is."""
        known = brought | set(agents(self._home, HOLDFAST))
        to_agent: dict[str, list[Flagged]] = defaultdict(list)
        for member in self._found.members:
            if member.slot.part != "flags":
                continue
            for name, flagged in self._addressed(member):
                if isinstance(flagged, Flagged) and name in known:
                    to_agent[name].append(flagged)
                    continue
                why = f"no agent called {name}: `holdfast init {name}`, then import it again"
                left = Taken(member.file.path, "skipped", why)
                yield Row(name or None, "flags", flagged if isinstance(flagged, Taken) else left)
        for name in sorted(to_agent):
            adoption = Adoption(self._home, name, layout=self._layout.name, dry_run=self._dry_run)
            yield from (Row(name, "flags", taken) for taken in adoption.take_flags(to_agent[name]))

    def _addressed(self, member: Member) -> Iterator[tuple[str, Flagged | Taken]]:
        """What a file says to whom; or, of nobody, why it says nothing."""
        file = self._load(member)
        if isinstance(file, Taken):
            yield "", file
            return
        by_name: dict[str, list[Flag]] = defaultdict(list)
        try:
            for flag in flags_in(file.path, file.data):
                by_name[flag.to].append(flag)
        except NoFlag as why:
            yield "", Taken(file.path, "skipped", str(why))
        for name, found in by_name.items():
            yield name, Flagged(file, found, utc_stamp(member.file.changed))

    # -- jobs --------------------------------------------------------------------------

    def _jobs(self) -> Iterator[Row]:
        by_name: dict[str, list[Member]] = defaultdict(list)
        for member in self._found.members:
            if member.slot.part == "job":
                by_name[member.slot.name].append(member)
        for name in sorted(by_name):
            adoption = jobs.Adoption(
                self._home, name, layout=self._layout.name, dry_run=self._dry_run
            )
            troubles: list[Taken] = []
            files = [found.file for found in self._loaded(by_name[name], troubles)]
            taken = adoption.take(files) if files else []
            if files and not self._dry_run:
                with Job(self._home, adoption.job) as job, Queue(self._home) as queue:
                    queue.register(adoption.job, job.state()["created_at"], use=False)
            yield from (Row(None, "job", each, adoption.job) for each in (*taken, *troubles))
        for member in self._found.members:
            if member.slot.part == "jobs":
                yield Row(None, "jobs", self._job_index(member, set(by_name)))

    def _job_index(self, member: Member, brought: set[str]) -> Taken:
        """Who waits for a runner there waits for nobody here: only what is missing is told."""
        file = self._load(member)
        if isinstance(file, Taken):
            return file
        try:
            told = value_in(file)
        except DecodeError as error:
            return Taken(file.path, "skipped", f"{error}; jobs are known by their folders")
        listed: Any = told.get("jobs") if isinstance(told, dict) else None
        gone = (
            sorted(set(cast("dict[str, Any]", listed)) - brought)
            if isinstance(listed, dict)
            else []
        )
        missing = f"; no folder here: {', '.join(gone[:5])[:200]}" if gone else ""
        return Taken(file.path, "skipped", f"queue and choice of job stay there{missing}")

    # -- the rest ----------------------------------------------------------------------

    def _others(self, names: Iterable[str]) -> Iterator[Row]:
        """What lies in the folder of an agent and is no part of its state."""
        for file in self._found.others:
            folder = next((name for name in names if f"/{name}/" in f"/{file.path}"), None)
            if folder is None or self._layout is LUKA:
                self.ignored += 1
                continue
            why = file.trouble or "not a file of this format"
            yield Row(mapped_agent_id(folder), "", Taken(file.path, "skipped", why))
