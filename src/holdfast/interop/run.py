"""One import: the tree of another system, agent after agent and job after job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import cast

from holdfast.clock import utc_stamp
from holdfast.codec import DecodeError, Record, pretty
from holdfast.contracts.kinds import kind
from holdfast.errors import BadName, HoldfastError, NotOurs
from holdfast.ids import mapped_agent_id, session_id
from holdfast.interop import jobs, ledgers
from holdfast.interop.agents import Adoption, Flagged, Found, Stop
from holdfast.interop.copies import Foreign, Taken, errors_in, shown, value_in
from holdfast.interop.flags import Flag, flags_in
from holdfast.interop.recognise import IMPORTABLE, Member, Recognised, owner_of
from holdfast.interop.tree import Tree
from holdfast.jobs.job import Job
from holdfast.jobs.queue import Queue
from holdfast.layout import HOLDFAST, LOGIST, LUKA, Part
from holdfast.ledger.book import Ledger, agents
from holdfast.store.home import Home


class Import:
    """One import: the files of each agent together, agent after agent."""

    def __init__(self, home: Home, tree: Tree, found: Recognised, *, dry_run: bool) -> None:
        self._home, self._tree, self._dry_run = home, tree, dry_run
        self._layout, self._found = found.layout, found
        self._adoption = partial(Adoption, home, layout=found.layout.name, dry_run=dry_run)
        self.ignored = 0

    def rows(self) -> Iterator[Record]:
        if self._layout is LOGIST:
            yield from self._jobs()
            self.ignored = len(self._found.others)
            return
        yield from self._stops()
        by_name = self._by_name(set(IMPORTABLE[self._layout.name]) - {"stops", "flags"})
        for name, members in by_name.items():
            if self._layout is LUKA:
                yield from self._ledger(name, members)
            else:
                adoption = self._adoption(name)
                yield from self._brought(members, adoption.take, adoption.agent)
            self._keep_name(mapped_agent_id(name), name)
        yield from self._flags({mapped_agent_id(name) for name in by_name})
        yield from self._others(by_name)

    def _members(self, *parts: Part) -> Iterator[Member]:
        return (member for member in self._found.members if member.slot.part in parts)

    def _by_name(self, parts: Iterable[Part]) -> dict[str, list[Member]]:
        """The files of each agent or job, in the order of the names."""
        found: dict[str, list[Member]] = defaultdict(list)
        for member in self._members(*parts):
            found[owner_of(self._tree, member)].append(member)
        return dict(sorted(found.items()))

    def _brought(
        self,
        members: Iterable[Member],
        take: Callable[[Iterator[Found]], Iterable[Taken]],
        agent: str | None,
        job: str | None = None,
    ) -> Iterator[Record]:
        """What became of the files when `take` gets them one after the other."""
        parts = {member.file.path: member.slot.part for member in members}
        unread: list[Taken] = []

        def loaded() -> Iterator[Found]:
            for member in members:
                try:
                    yield Found(member.slot.part, self._load(member))
                except HoldfastError as error:
                    unread.append(_skipped(member, error))

        for taken in chain(take(loaded()), unread):
            yield _row(agent, parts[taken.path], taken, job)

    def _load(self, member: Member) -> Foreign:
        if member.file.trouble:
            raise NotOurs(member.file.trouble)
        return Foreign(member.file.path, self._tree.read(member.file.path))

    def _keep_name(self, agent: str, name: str) -> None:
        """What the agent is called elsewhere, if it is called otherwise here."""
        if agent == name or self._dry_run:
            return
        document = self._home.document(HOLDFAST.manifest(agent))
        if document.read() is None:
            text = pretty({"agent_id": agent, "display_name": name})
            document.update(lambda old: old or text)

    # -- ledgers -----------------------------------------------------------------------

    def _ledger(self, name: str, members: list[Member]) -> Iterator[Record]:
        agent = mapped_agent_id(name)

        def entries(files: Iterator[Found]) -> Iterator[Taken]:
            with Ledger(self._home, agent) as ledger:
                yield from ledgers.adopt(
                    ledger,
                    self._home,
                    (each.file for each in files),
                    layout=self._layout.name,
                    dry_run=self._dry_run,
                )

        def summaries(files: Iterator[Found]) -> Iterator[Taken]:
            return (self._summary(agent, each.file) for each in files)

        texts = [member for member in members if member.slot.part == "summaries"]
        lines = [member for member in members if member.slot.part != "summaries"]
        yield from self._brought(lines, entries, agent)
        yield from self._brought(texts, summaries, agent)

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

    # -- stops and flags ---------------------------------------------------------------

    def _stops(self) -> Iterator[Record]:
        by_id: dict[str, list[Stop]] = defaultdict(list)
        for member in self._members("stops"):
            try:
                file = self._load(member)
                reading = kind("legacy-session").read(value_in(file))
                if wrong := errors_in(reading):
                    raise ValueError(shown(wrong[:1]))
            except (HoldfastError, ValueError) as error:
                yield _row(None, "stops", _skipped(member, error))
                continue
            id, ended, status = (str(reading.value[name]) for name in ("id", "ended", "status"))
            by_id[id].append(Stop(file, id, ended, status))
        for id, stops in sorted(by_id.items()):
            adoption = self._adoption(id)
            yield _row(adoption.agent, "stops", adoption.take_stops(stops))
            self._keep_name(adoption.agent, id)

    def _flags(self, brought: set[str]) -> Iterator[Record]:
        """Flags go to agents that there are; for others the file lies where it is."""
        known = brought | set(agents(self._home, HOLDFAST))
        to_agent: dict[str, list[Flagged]] = defaultdict(list)
        for member in self._members("flags"):
            by_name: dict[str, list[Flag]] = defaultdict(list)
            try:
                file = self._load(member)
                for flag in flags_in(file):
                    by_name[flag.to].append(flag)
            except (HoldfastError, ValueError) as error:
                yield _row(None, "flags", _skipped(member, error))
                continue
            for name, flags in by_name.items():
                if name in known:
                    changed = utc_stamp(member.file.changed)
                    to_agent[name].append(Flagged(file, flags, changed))
                else:
                    why = f"no agent called {name}: `holdfast init {name}`, then import it again"
                    yield _row(name, "flags", _skipped(member, why))
        for name, found in sorted(to_agent.items()):
            for taken in self._adoption(name).take_flags(found):
                yield _row(name, "flags", taken)

    # -- jobs --------------------------------------------------------------------------

    def _jobs(self) -> Iterator[Record]:
        by_name = self._by_name(["job"])
        for name, members in by_name.items():
            adoption = jobs.Adoption(
                self._home, name, layout=self._layout.name, dry_run=self._dry_run
            )

            def take(found: Iterator[Found], adoption: jobs.Adoption = adoption) -> list[Taken]:
                files = [each.file for each in found]
                taken = adoption.take(files) if files else []
                if files and not self._dry_run:
                    with Job(self._home, adoption.job) as job, Queue(self._home) as queue:
                        queue.register(adoption.job, job.state()["created_at"], use=False)
                return taken

            yield from self._brought(members, take, None, adoption.job)
        for member in self._members("jobs"):
            yield _row(None, "jobs", self._job_index(member, by_name.keys()))

    def _job_index(self, member: Member, brought: Collection[str]) -> Taken:
        """The queue and the default job there mean nothing here: only missing folders count."""
        try:
            found = value_in(self._load(member))
        except (HoldfastError, DecodeError) as error:
            return _skipped(member, f"{error}; jobs are known by their folders")
        listed = found.get("jobs") if isinstance(found, dict) else None
        names = cast("Record", listed if isinstance(listed, dict) else {})
        gone = sorted(names.keys() - brought)
        missing = f"; no folder here: {', '.join(gone[:5])[:200]}" if gone else ""
        return _skipped(member, f"queue and choice of job stay there{missing}")

    # -- the rest ----------------------------------------------------------------------

    def _others(self, names: Iterable[str]) -> Iterator[Record]:
        """What lies in the folder of an agent and is no part of its state."""
        for file in self._found.others:
            folder = next((name for name in names if f"/{name}/" in f"/{file.path}"), None)
            if folder is None or self._layout is LUKA:
                self.ignored += 1
                continue
            why = file.trouble or "not a file of this format"
            yield _row(mapped_agent_id(folder), "", Taken(file.path, "skipped", why))


def _skipped(member: Member, why: object) -> Taken:
    return Taken(member.file.path, "skipped", str(why))


def _row(agent: str | None, part: str, taken: Taken, job: str | None = None) -> Record:
    """What became of a file, for people."""
    return {
        "agent": agent,
        "job": job,
        "part": part,
        "file": taken.path,
        "state": taken.outcome,
        "entries": taken.entries,
        "detail": taken.detail,
    }
