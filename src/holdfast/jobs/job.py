"""One job as one handle: its history and its state.

Each change of a job is decided under the lock of its history from the state before it, and is one
write.  People decide without a lease; a runner has it, and each of its lines carries the number of
the lease, so a runner that was replaced can write no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast import audit
from holdfast.calls.sealing import MARK, Seals
from holdfast.clock import utc_stamp
from holdfast.codec import Record, pretty
from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import BadName, Busy, Conflict, Corrupt, LeaseLost, NotFound
from holdfast.jobs import state as fold
from holdfast.jobs.sealed import blanked, is_sealed, locked, opened
from holdfast.jobs.state import phase_of, spec_of
from holdfast.layout import HOLDFAST, Layout
from holdfast.mask.shown import beginning
from holdfast.state.statelog import StateLog
from holdfast.store.failpoints import hit
from holdfast.store.primitives import CONTROL, START, Cursor, Decision, Held, Line, Written
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = fold.Job
T = TypeVar("T")
Decide = Callable[[State], Sequence[Record]]
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
RUN = "job run"
"""How the purpose of a runner's lease begins; others hold it for moments."""
_VERSION = 7


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


def is_lost(home: Home, key: str) -> bool:
    """Whether a folder without a history was a job: what is shown of it tells."""
    name = f"{key}/manifest.json"
    text = home.document(name).read()
    if text is not None and b'"job_id"' in text.data:
        return True
    with closing(home.cell(name)) as cell:
        stamp = cell.peek()
    return stamp is not None and stamp.cursor.seq > 0


def check_not_lost(home: Home, key: str, name: str) -> None:
    """Corrupt if what is missing here is not the job but its history."""
    if is_lost(home, key):
        raise Corrupt(
            f"the history of {name} is damaged or gone",
            hint=f"bring {key}/history.jsonl back from a backup; {key}/manifest.json shows "
            "where the job was",
            path=f"{key}/history.jsonl",
        )


class Job:
    def __init__(self, home: Home, name: str, layout: Layout = HOLDFAST) -> None:
        self.name, self.home = job_id(name), home
        self.key = layout.path("job", self.name)
        self._history = StateLog(
            home, f"{self.key}/history.jsonl", SHAPE, {f"{self.key}/manifest.json": shown}
        )
        self.log = self._history.log
        self._lease = home.lease(f"{self.key}/runner")
        self.seals = Seals(home, self.log.key)
        self._clear = False
        self._now = ""
        """The time of the lines that are being decided."""
        self.fence = 0
        """Of the lease, while this process has it."""

    # -- beginning ---------------------------------------------------------------------

    def create(
        self, spec: JobSpec, origin: Record | None = None, *, created_at: str | None = None
    ) -> None:
        """Write the first line; Conflict if there is one."""

        def decide(state: State) -> Sequence[Record]:
            if state["job_id"]:
                hint = "give the new one another --id"
                raise Conflict(f"there is a job {self.name} already", hint=hint)
            made = created_at or (None if origin and "imported" in origin else self.now())
            line: Record = {"event": "new", "job_id": self.name, "created_at": made}
            return [line | {"spec": spec.value()} | ({"origin": origin} if origin else {})]

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
        """After every line; look at it, do not change it: it goes on with the next lines."""
        return self._readable(self._history.state())

    def stored(self) -> State:
        """The same with sealed texts as they are stored, so that it is the same for everyone."""
        return self._history.known()

    def known(self) -> State:
        """After every line that was read or written here."""
        return self._readable(self._history.known())

    def ahead(self, lines: Sequence[Record]) -> State:
        """Within a decision: the state that these lines would make; the one before is gone."""
        return self._history.preview(self._stamped(lines))

    def _stamped(self, lines: Sequence[Record]) -> list[Record]:
        return [
            {"ts": self._now, **line, "fence": self.fence} if self.fence else line for line in lines
        ]

    def reveal(self) -> None:
        """Open the texts of a sensitive job from now on; NoKey if its key is missing."""
        self._clear = True
        self.state()

    def conceal(self) -> None:
        """Show the texts of a sensitive job no more."""
        self._clear = False

    def _readable(self, state: State) -> State:
        """The state of a sensitive job as it may be seen; of the trail, its end."""
        if not is_sealed(state["spec"]):
            return state
        trail, parts = state["trail"], state["parts"]  # which are long, and have hardly any text
        made: State = self._text({**state, "trail": [], "parts": {}})
        shown = [*trail[:-1], *self._text(trail[-1:])] if self._clear else trail
        return {**made, "parts": parts, "trail": shown}

    def _text(self, value: Any) -> Any:
        return opened(value, self.seals) if self._clear else blanked(value)

    @property
    def spec(self) -> JobSpec:
        return spec_of(self.state())

    def decide(self, decide: Decide, *, blind: bool = False) -> Written[None]:
        """Write what `decide` makes of the state, with no other line in between.

        A `blind` decision looks at no text of a sensitive job and has none, so it needs no key.
        """
        return self.transact(lambda state: (decide(state), None), blind=blind)

    def transact(
        self, decide: Callable[[State], Decision[T]], *, blind: bool = False
    ) -> Written[T]:
        """The same, of a decision that comes to a value beside its lines."""

        def lines(stored: State) -> Decision[tuple[T, Sequence[Record]]]:
            self._now, sealed = self.now(), is_sealed(stored["spec"])
            self._clear |= sealed and not blind
            if 0 < self.fence < stored["fence"]:
                raise LeaseLost(
                    f"another process runs {self.name} now",
                    hint="this one was frozen for too long; what it did since is not recorded",
                )
            made, value = decide(self._readable(stored))
            if made and not blind and (sealed or is_sealed(made[0].get("spec") or {})):
                made = [locked(line, self.seals) for line in made]
            return self._stamped(made), (value, made)

        written = self._history.decide(lines)
        value, made = written.value
        # Secrets in what people wrote; the runner reports those in replies.
        for number, each in enumerate(made if written.masked else []):
            if (what := _WRITTEN.get(str(each.get("event")))) is not None:
                ref = f"{self.log.key}@{written.lines[-1].cursor.seq}/{number}"
                audit.redacted(self.home, f"{what} of {self.name}", each, job=self.name, ref=ref)
        if written.lines:
            hit("job.written")
        return Written(written.lines, value, written.masked)

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
        self._history.flush()

    def holder(self) -> Held | None:
        """The living process that runs the job, if one does."""
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
        for line in self.log.read(after):
            if not isinstance(line, Line) or CONTROL in line.record:
                continue
            if MARK in line.record:
                text = blanked(line.record) if blank else self._text(line.record)
                line = line._replace(record=text)
            yield line

    def workspace_shown(self) -> str | None:
        """Where the job's files are, as the history tells it."""
        spec = self.spec
        own = f"{self.home.path}/{self.key}/workspace"
        return spec.source if spec.isolation == "none" else own

    # -- showing -----------------------------------------------------------------------

    def rebuild(self) -> list[str]:
        """Make manifest.json again; the names under which edited ones were kept."""
        return self._history.rebuild()

    def close(self) -> None:
        self._history.close()
        self._lease.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


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
    spec, limits = spec_of(state), state["limits"]
    first = (spec.task.strip().splitlines() or [""])[0]
    shown: Record = {
        "schema_version": "1.0",
        "job_id": state["job_id"],
        "description": spec.description or beginning(first, 200) or None,
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
        **{name: getattr(spec, name) for name in ("objective", "details", "acceptance", "files")},
        "roles": dict(spec.models),
        "cost_threshold": round(limits.get("max_cost_usd", 0.0) * 100, 6),
        "time_threshold_minutes": round(limits.get("max_seconds", 0.0) / 60, 6),
    }
    origin: Record = state["origin"] or {}
    if status := origin.get("foreign_status"):
        shown["foreign_status"] = status
    # What a manifest of another system said that this one has no field for.
    if not (foreign := cast("Record", state["foreign"] or {})):
        return shown
    phases: Record = foreign.get("phases", {})
    metrics = {**foreign.get("metrics", {}), **shown["metrics"]}
    named = [{**phases.get(each["name"], {}), **each} for each in shown["phases"]]
    return {**foreign.get("manifest", {}), **shown, "metrics": metrics, "phases": named}


SHAPE: Shape[State] = Shape(version=_VERSION, initial=fold.initial, fold=fold.fold, render=shown)
