"""One job as one handle: its history, the state that makes, and its files.

Whatever happens to a job is decided under the lock of its history from the state before it, and is
one write.  People decide without a lease; who asks agents has it, and every line of his carries its
number, so that one who was replaced can no longer say anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import audit
from holdfast.calls.sealing import MARK, Seals
from holdfast.clock import utc_stamp
from holdfast.codec import Record, pretty
from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import BadName, Busy, Conflict, LeaseLost, NotFound, StorageError
from holdfast.jobs import state as fold
from holdfast.jobs.lost import check_not_lost
from holdfast.jobs.sealed import blanked, is_sealed, locked, opened
from holdfast.jobs.state import phase_of, spec_of
from holdfast.layout import HOLDFAST, Layout
from holdfast.mask import hiding, masked_so_far
from holdfast.mask.shown import beginning
from holdfast.store.failpoints import hit
from holdfast.store.primitives import CONTROL, START, Cursor, Decision, Held, Line
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = fold.Job
Decide = Callable[[State], Sequence[Record]]
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
SCHEMA_VERSION = "1.0"
RUN = "job run"
"""What the lease of one who asks agents begins with; others only hold it for moments."""
_VERSION = 7
_PAUSE, _SHARE = 0.05, 60
"""Seconds between two writings of the manifest; and it may take one part in so many of the time."""


def is_job_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def job_id(name: str) -> str:
    """A name that a job can have."""
    if not is_job_id(name):
        raise BadName(
            f"not a job: {name[:80]!r}",
            hint="1 to 128 of A-Z a-z 0-9 _ -, starting with a letter or digit",
        )
    return name


class Job:
    def __init__(self, home: Home, name: str, layout: Layout = HOLDFAST) -> None:
        self.name, self.home = job_id(name), home
        self.key = layout.path("job", self.name)
        self.log = home.log(f"{self.key}/history.jsonl")
        self._owed: Cursor | None = None
        """The newest line that the manifest does not show yet."""
        self._own: Cursor | None = None
        """Our last line."""
        self._seen: State | None = None
        """The state as we read it, behind that line or later."""
        self._ours: State | None = None
        """The same as a copy of our own, which goes on with each line that we write."""
        self._sealed = False
        """Whether what is said in the job is sealed, as far as we have looked."""
        self._now, self._folded = "", 0
        """The time of the lines that are being decided, and how many of them we are ahead."""
        self._lines: list[Record] = []
        """Those lines with that time."""
        self.kept_all = False
        """Whether the history says our last lines just as we gave them."""
        self._next_show = float("-inf")
        self._manifest = home.view(
            f"{self.key}/manifest.json",
            self.log,
            Shape(version=_VERSION, initial=fold.initial, fold=fold.fold, render=shown),
        )
        self._lease = home.lease(f"{self.key}/runner")
        self.seals = Seals(home, self.log.key)
        self._clear = False
        self._told_spec: tuple[Any, Any] = (None, None)
        self.fence = 0
        """Of the lease, as long as we have it."""

    # -- beginning ---------------------------------------------------------------------

    def create(
        self,
        spec: JobSpec,
        origin: Record | None = None,
        *,
        created_at: str | None = None,
    ) -> None:
        """Write the first line; Conflict if there is one."""

        def decide(state: State) -> Sequence[Record]:
            if state["job_id"]:
                raise Conflict(
                    f"there is a job {self.name} already", hint="give the new one another --id"
                )
            made = created_at or (None if origin and "imported" in origin else self.now())
            line: Record = {"event": "new", "job_id": self.name, "created_at": made}
            line["spec"] = spec.value()
            return [line | {"origin": origin} if origin else line]

        self.decide(decide)

    def exists(self) -> bool:
        return bool(self.state()["job_id"])

    def check_exists(self) -> None:
        if not self.exists():
            check_not_lost(self.home, self.key, self.name)
            raise NotFound(f"there is no job {self.name}", hint="`holdfast job list` shows them")

    def now(self) -> str:
        return utc_stamp(self.home.clock.now())

    # -- deciding ----------------------------------------------------------------------

    def state(self) -> State:
        """After every line; look at it, do not change it."""
        state = self._manifest.read()
        self._sealed = is_sealed(state["spec"])
        self._seen = self._told(state) if self._sealed else state
        return self._seen

    def stored(self) -> State:
        """The same with sealed texts as they stand there, so that it is the same for everybody."""
        return self._manifest.read() if is_sealed(self.known()["spec"]) else self.known()

    def known(self) -> State:
        """After every line of ours, and what others wrote as far as we have looked."""
        return self.state() if self._seen is None else self._seen

    def ahead(self, state: State, lines: Sequence[Record]) -> State:
        """The state that the next lines of a runner will make of one, which is gone then."""
        if self._ours is None or (state is not self._ours and not self._folded):
            self._ours = fold.copied(state)
        for each in self._stamped(lines)[self._folded :]:
            fold.folded(self._ours, each)
        self._folded = len(lines)
        return self._ours

    def _stamped(self, lines: Sequence[Record]) -> list[Record]:
        """The lines as they are written; those that were decided on are never changed again."""
        for each in lines[len(self._lines) :]:
            stamped = {"ts": self._now, **each, "fence": self.fence} if self.fence else each
            self._lines.append(stamped)
        return self._lines

    def reveal(self) -> None:
        """Open the texts of a sensitive job from now on; NoKey if its key is not at hand."""
        self._clear, self._told_spec = True, (None, None)
        self.state()

    def conceal(self) -> None:
        """Show the texts of a sensitive job no more."""
        self._clear, self._seen, self._told_spec = False, None, (None, None)

    def _told(self, sealed: State) -> State:
        """The state of a sensitive job as it may be seen; of the trail, its end."""
        told = partial(opened, seals=self.seals) if self._clear else blanked
        if self._told_spec[0] is not sealed["spec"]:
            self._told_spec = (sealed["spec"], told(sealed["spec"]))
        apart = ("spec", "trail", "parts")
        state: State = told({name: each for name, each in sealed.items() if name not in apart})
        state |= {name: sealed[name] for name in apart} | {"spec": self._told_spec[1]}
        if self._clear:
            state["trail"] = [*sealed["trail"][:-1], *told(sealed["trail"][-1:])]
        return state

    @property
    def spec(self) -> JobSpec:
        return spec_of(self.state())

    def decide(self, decide: Decide, *, blind: bool = False) -> list[Cursor]:
        """Append what `decide` makes of the state, nobody writing in between.

        A `blind` decision looks at no text of a sensitive job and has none, so it needs no key.
        """

        before, made = State(), list[Record]()

        def lines(head: Cursor) -> Decision[Cursor]:
            nonlocal before, made
            self._now, self._folded, self._lines = self.now(), 0, []
            # Nobody wrote behind us, so whatever we saw since is how it is.
            state = self.known() if head == self._own else self.state()
            if self._sealed and not self._clear and not blind:
                self.reveal()
                state = self.known()
            if 0 < self.fence < state["fence"]:
                raise LeaseLost(
                    f"another process runs {self.name} now",
                    hint="this one was frozen for too long; what it did since is not on record",
                )
            before, made = state, [*decide(state)]
            if made and not blind and is_sealed(made[0].get("spec") or state["spec"]):
                made, self._lines = [locked(each, self.seals) for each in made], []
            return self._stamped(made), head

        masked = masked_so_far()
        try:
            found = self.log.write(lines)
        except BaseException:
            self._seen = self._ours = None  # what was folded ahead is not on record
            raise
        written = [line.cursor for line in found.lines]
        if written:
            self._own = written[-1]
            clear = masked_so_far() == masked
            if not clear:
                self._tell_masked(made, written[-1])
            self.kept_all = not self._sealed and clear
            if self.fence and self.kept_all:
                self._seen = self.ahead(before, made)
            else:
                self._seen = self._ours = None
            hit("job.written")
            self._manifest.took(found.value, found.lines)
            self._show(written[-1])
        return written

    def _tell_masked(self, lines: Sequence[Record], last: Cursor) -> None:
        """Tell of secrets in what people wrote; who asks agents tells of those in their replies."""
        for number, each in enumerate(lines):
            if (what := _WRITTEN.get(str(each.get("event")))) is not None:
                ref = f"{self.log.key}@{last.seq}/{number}"
                audit.redacted(self.home, f"{what} of {self.name}", each, job=self.name, ref=ref)

    # -- owning ------------------------------------------------------------------------

    def own(self, purpose: str) -> None:
        """Be the one who runs the job; Busy naming the other one."""
        try:
            self.fence = self._lease.acquire(purpose)
        except Busy as error:
            held = self.holder()
            who = f"process {held.owner.pid} since {held.since}: {held.purpose}" if held else ""
            runs = held is None or held.purpose.startswith(RUN)
            end = f", or end it: `holdfast job cancel {self.name}`" if runs else " and try again"
            raise Busy(
                f"{self.name} is {'run' if runs else 'held'} by {who or 'another process'}",
                hint=f"wait for it{end}",
                path=error.path,
            ) from None
        self.reveal()
        self.catch_up()

    def catch_up(self) -> None:
        """Show what the last one who wrote did not live to show."""
        self._manifest.refresh()

    def holder(self) -> Held | None:
        """Who runs the job, if somebody living does."""
        held = self._lease.holder()
        return held if held is not None and held.alive else None

    def disown(self) -> None:
        self._lease.release()
        self.fence = 0

    # -- reading -----------------------------------------------------------------------

    def lines(self, after: Cursor = START, *, blank: bool = False) -> Iterator[Line]:
        """What the history says, in order; bad lines are left to `check`.

        The texts of a sensitive job are open after `reveal`, unless they shall be `blank`.
        """
        told = partial(opened, seals=self.seals) if self._clear and not blank else blanked
        for line in self.log.read(after):
            if isinstance(line, Line) and CONTROL not in line.record:
                yield line._replace(record=told(line.record)) if MARK in line.record else line

    def workspace_shown(self) -> str | None:
        """Where the job's files are, as the history tells it."""
        spec = self.spec
        if spec.isolation == "none":
            return spec.source
        return f"{self.home.path}/{self.key}/workspace"

    # -- showing -----------------------------------------------------------------------

    def _show(self, acked: Cursor) -> None:
        """Bring manifest.json up to date, as often as costs little beside the work itself."""
        now = self.home.clock.boottime()
        self._owed = acked if now < self._next_show else None
        if self._owed is None:
            try:
                self._manifest.refresh(acked, read=False)
            except StorageError:
                # What was decided is on record, and whoever reads the manifest folds it.
                self._owed = acked
            after = self.home.clock.boottime()
            self._next_show = after + max(_PAUSE, _SHARE * (after - now))

    def rebuild(self) -> list[str]:
        """Make manifest.json anew; the names under which edited ones were kept."""
        self._manifest.rebuild()
        return self._manifest.kept_aside

    def close(self) -> None:
        try:
            with suppress(StorageError):
                if self._owed is not None:
                    self._manifest.refresh(self._owed)
                self._manifest.close()
        finally:
            self._lease.close()
            self.log.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def stays(line: Record) -> bool:
    """Whether the history keeps a line as it is: what is secret is masked there."""
    return _hidden(line) is line


_hidden = hiding()
_WRITTEN = {
    "new": "the spec",
    "set": "the spec",
    "part": "a prompt",
    "move": "a decision",
    "hold": "a decision",
    "note": "a note",
}


def shown(state: State) -> bytes:
    return pretty(manifest(blanked(state) if is_sealed(state["spec"]) else state))


def manifest(state: State) -> Record:
    """The state of a job as other programs read it."""
    if not state["job_id"]:
        return {}
    spec = spec_of(state)
    shown: Record = {
        "schema_version": SCHEMA_VERSION,
        "job_id": state["job_id"],
        "description": spec.description or _first_line(spec.task),
        "status": state["status"],
        "hold": state["hold"],
        "current_phase": phase_of(state).name if spec.phases else None,
        "metrics": {
            "cumulative_cost": round((state["cost_usd"] + state["assumed_usd"]) * 100, 6),
            "cumulative_time_seconds": round(state["seconds"], 3),
            "current_action_count": state["steps"],
        },
        "history": state["trail"],
        "phases": [
            {
                "name": phase.name,
                "description": phase.description,
                "role": phase.role,
                "worker_instructions": phase.instructions,
            }
            for phase in spec.phases
        ],
        "prompt": spec.prompt,
        "objective": spec.objective,
        "details": spec.details,
        "acceptance": spec.acceptance,
        "files": spec.files,
        "roles": dict(spec.models),
        "cost_threshold": round(state["limits"].get("max_cost_usd", 0.0) * 100, 6),
        "time_threshold_minutes": round(state["limits"].get("max_seconds", 0.0) / 60, 6),
    }
    origin: Record = state["origin"] or {}
    foreign = origin.get("foreign_status")
    return _with_foreign(state, shown | ({"foreign_status": foreign} if foreign else {}))


def _with_foreign(state: State, shown: Record) -> Record:
    """What a manifest of another system said that ours has no field for."""
    foreign: Record = state["foreign"] or {}
    if not foreign:
        return shown
    phases: Record = foreign.get("phases", {})
    return {
        **foreign.get("manifest", {}),
        **shown,
        "metrics": {**foreign.get("metrics", {}), **shown["metrics"]},
        "phases": [{**phases.get(each["name"], {}), **each} for each in shown["phases"]],
    }


def _first_line(text: str) -> str | None:
    return beginning(text.strip().splitlines()[0], 200) if text.strip() else None
