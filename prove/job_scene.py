"""A job in a home, the world that its agents change, and a steward who looks into it.

The world is a folder outside of the home.  What an agent does there is done: it is on record in
`effects.jsonl`, and nothing that the engine puts back touches it.  So whatever is done twice is
seen twice.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import Unavailable
from holdfast.jobs import history, steward
from holdfast.jobs.job import Job
from holdfast.jobs.queue import Queue
from holdfast.jobs.replay import replay
from holdfast.jobs.runner import Runner
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.models.protocol import Reply, Request
from holdfast.store.home import Home
from holdfast.store.vfs import RealDir, RealVfs
from holdfast.testing import unmarked
from holdfast.workspace.workspace import Measured, Workspace
from prove.job_plans import ERROR, Plan, answer, nth

State = dict[str, Any]
MOST_ROUNDS = 400
LOST = "the runner died"
"""How the engine's reason begins when it does not know what a call did."""


class Unsynced(RealVfs):
    """A process that dies takes nothing with it that was written, synced or not."""

    def root(self, path: str, *, create: bool = False) -> RealDir:
        return _unsynced(super().root(path, create=create))

    def sync(self, fd: int, /) -> None:
        """Nothing: this is not about power."""


class UnsyncedDir(RealDir):
    def subdir(self, name: str, *, create: bool = False) -> RealDir:
        return _unsynced(super().subdir(name, create=create))

    def sync(self, up: int = 0) -> None:
        """Nothing."""


def _unsynced(directory: RealDir) -> UnsyncedDir:
    return UnsyncedDir(directory._fd, directory.path)


class Ticks:
    """A clock that goes on a little at each look, so that the same steps are taken each time."""

    def __init__(self) -> None:
        self._seconds = 1_700_000_000.0

    def now(self) -> float:
        self._seconds += 0.01
        return self._seconds

    def boottime(self) -> float:
        return self.now()

    def boot(self) -> str:
        return "one boot"

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds


# --- the world ------------------------------------------------------------------------------


class Effect(NamedTuple):
    phase: str
    index: int
    """Which answer of its phase it belongs to."""


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._effects, self._excused = folder / "effects.jsonl", folder / "excused"

    def do(self, effect: Effect) -> None:
        with self._effects.open("a", encoding="utf-8") as file:
            file.write(json.dumps(effect) + "\n")

    def effects(self) -> list[Effect]:
        if not self._effects.exists():
            return []
        lines = self._effects.read_text(encoding="utf-8").splitlines()
        return [Effect(*json.loads(line)) for line in lines]

    def excuse(self, lost: Effect, sequence: int) -> None:
        """The steward notes which answer the engine has lost, once for each call."""
        if not any(each[2] == sequence for each in self._notes()):
            with self._excused.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*lost, sequence]) + "\n")

    def excused(self, phase: str) -> list[Effect]:
        """For each call of a phase that was lost what it was to do."""
        return [Effect(name, index) for name, index, _ in self._notes() if name == phase]

    def _notes(self) -> list[list[Any]]:
        if not self._excused.exists():
            return []
        lines = self._excused.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


class Agent:
    """A model in our own process: what it says and does is in the plan."""

    def __init__(self, plan: Plan, phase: str, world: World, workspace: str) -> None:
        self.ref = str(plan.phase(phase)["model"])
        self._plan, self._phase, self._world, self._workspace = plan, phase, world, workspace

    def ask(self, request: Request, on_text: object = None) -> Reply:
        index = (request.ordinal or 0) - len(self._world.excused(self._phase))
        kind = self._plan.said(self._phase, index)
        if kind == ERROR:
            raise Unavailable(f"{self.ref} is not there for {index}", hint="ask again")
        acts = self._plan.acts(self._phase)
        if acts:
            self._world.do(Effect(self._phase, index))
            work(Path(self._workspace), self._phase, index)
        cost = 0.0 if acts else 0.25
        return Reply(answer(self._plan, self._phase, index), self.ref, cost_usd=cost)

    def most_usd(self, request: Request) -> float | None:
        return 0.25

    def close(self) -> None:
        """Nothing is open."""


def work(workspace: Path, phase: str, index: int) -> None:
    """What an agent leaves in the workspace."""
    (workspace / f"{phase}.txt").write_text(f"{index}\n", encoding="utf-8")
    (workspace / f"{phase}.gate").write_text("open\n" if index else "", encoding="utf-8")


class PlainWorkspace(Workspace):
    """A folder whose states are kept as plain files: a thousand times as fast as git."""

    def __init__(self, path: Path, kept: Path) -> None:
        self.path, self.isolation = str(path), "directory"
        self._folder, self._kept = path, kept

    def make(self, attachments: Mapping[str, str] | None = None) -> None:
        self._folder.mkdir(exist_ok=True, parents=True)
        self._kept.mkdir(exist_ok=True)

    def snapshot(self, message: str = "") -> str | None:
        data = json.dumps(self._files(), sort_keys=True)
        name = sha256(data.encode()).hexdigest()
        (self._kept / name).write_text(data, encoding="utf-8")
        return name

    def restore(self, tree: str) -> Measured:
        before = self.changed_since(tree)
        for file in self._folder.iterdir():
            file.unlink()
        for name, text in self._tree(tree).items():
            (self._folder / name).write_text(text, encoding="utf-8")
        return before

    def changed_since(self, tree: str) -> Measured:
        then, now = self._tree(tree), self._files()
        return Measured(
            sorted(now.keys() - then.keys()),
            sorted(name for name in now.keys() & then.keys() if now[name] != then[name]),
            sorted(then.keys() - now.keys()),
        )

    def text_of(self, path: str) -> str | None:
        return self._files().get(path)

    def _tree(self, tree: str) -> dict[str, str]:
        return json.loads((self._kept / tree).read_text(encoding="utf-8"))

    def _files(self) -> dict[str, str]:
        return files_in(self._folder)


def files_in(folder: Path) -> dict[str, str]:
    if not folder.exists():
        return {}
    found = (each for each in sorted(folder.iterdir()) if each.is_file())
    return {each.name: each.read_text(encoding="utf-8") for each in found}


# --- one life -------------------------------------------------------------------------------


class Scene:
    """The places of one case."""

    def __init__(self, place: Path, plan: Plan) -> None:
        self.plan, self.place = plan, place
        self.home = place / "home"
        self.world = World(place)
        self.workspace = self.home / f"jobs/job-{plan.number}/workspace"

    @property
    def name(self) -> str:
        return f"job-{self.plan.number}"

    @property
    def history(self) -> Path:
        return self.home / f"jobs/{self.name}/history.jsonl"

    def open(self) -> Home:
        return Home.open(str(self.home), clock=Ticks(), vfs=Unsynced())

    def next_effect(self, state: State) -> Effect:
        """What the next call will do."""
        phase = self.plan.spec["phases"][state["phase"]]
        asked = state["asked"].get(phase["model"], 0)
        return Effect(phase["name"], asked - len(self.world.excused(phase["name"])))

    def lost_effect(self, state: State) -> Effect:
        """What the call was to do of which nobody knows how it ended."""
        after = self.next_effect(state)
        return after._replace(index=after.index - 1)


def new_scene(place: Path, plan: Plan, template: Path) -> Scene:
    scene = Scene(place, plan)
    shutil.copytree(template, scene.home)
    return scene


def live(scene: Scene) -> None:
    """Take the job from wherever it is to its end; one process, unless it is killed on the way."""
    with scene.open() as home, Job(home, scene.name) as job:
        if not job.exists():
            job.create(settled_spec(scene.plan))
        if job.state()["status"] == "DRAFT":
            steward.activate(job)
        job.own("proof")
        workspace = PlainWorkspace(scene.workspace, scene.place / "trees")
        workspace.make()
        crew = {
            each["model"]: Agent(scene.plan, each["name"], scene.world, workspace.path)
            for each in scene.plan.spec["phases"]
        }
        runner = Runner(job, workspace, given=crew)
        try:
            for _ in range(MOST_ROUNDS):
                if not go_on(scene, job, runner):
                    break
            else:
                raise AssertionError(f"{scene.name} does not come to an end")
            history.show(job)
        finally:
            runner.close()
        job.disown()


def settled_spec(plan: Plan) -> JobSpec:
    return settled(spec_from(plan.spec).spec, Options())


def go_on(scene: Scene, job: Job, runner: Runner) -> bool:
    """Whatever has to be done next, by the agents or by the steward; False at the end."""
    state = job.state()
    if state["status"] in ("SUCCESS", "CANCELED"):
        return False
    if state["status"] == "RUNNING":
        runner.recover()
    elif decided(scene, job, state):
        return True
    elif (done := already_done(scene, state)) is not None:
        runner.respond(answer(scene.plan, done.phase, done.index))
    elif scene.plan.pause_after is None and scene.plan.number % 2:
        runner.run()  # which claims the next call together with the verdict on the last
    else:
        runner.step()
    return True


def already_done(scene: Scene, state: State) -> Effect | None:
    """What the next call would do, if the engine has asked whether it is done, and it is."""
    found = scene.next_effect(state)
    asked = found in scene.world.excused(found.phase)
    return found if asked and found in scene.world.effects() else None


def decided(scene: Scene, job: Job, state: State) -> bool:
    """Decide as the plan has it, if there is something to decide."""
    plan, name = scene.plan, scene.plan.spec["phases"][state["phase"]]["name"]
    told = [str(each.get("description")) for each in state["trail"]]
    if state["hold"] == "suspended":
        steward.resume(job)
    elif state["hold"] == "approval":
        number = sum(f"rejecting {name} " in each for each in told)
        if nth(plan.approvals.get(name, []), number, "approve") == "reject":
            steward.reject(job, f"rejecting {name} {number}")
        else:
            steward.approve(job, f"approving {name} {number}")
    elif state["status"] == "INTERVENTION_REQUIRED":
        if str(state["why"]).startswith(LOST):
            scene.world.excuse(scene.lost_effect(state), state["sequence"] - 1)
            steward.go_on(job)
        else:
            unstick(plan, job, state, name)
    elif plan.pause_after == verdicts(state) and not any("pausing" in each for each in told):
        steward.suspend(job, "pausing")
    else:
        return False
    return True


def unstick(plan: Plan, job: Job, state: State, name: str) -> None:
    number = len(re.findall(rf"unsticking {name} ", json.dumps(state["trail"])))
    decision = nth(plan.stuck.get(name, []), number, "continue")
    places = [each["id"] for each in state["points"] if each["can_resume_from"]]
    guidance = f"unsticking {name} {number}"
    match decision:
        case "halt":
            steward.halt(job, guidance)
        case "rewind" | "point":
            # A rewind has no words of its own; so they come first, and say whether they are new.
            if state["guidance"] and state["guidance"][-1]["text"] == f"{guidance} by {decision}":
                point = places[-1] if decision == "point" and places else None
                steward.rewind(job, phase=None if point else 0, point=point)
            else:
                note = {"event": "note", "guidance": f"{guidance} by {decision}"}
                job.decide(lambda _: [note])
        case _:
            steward.go_on(job, guidance)


def verdicts(state: State) -> int:
    return sum("action" in each for each in state["trail"])


# --- what came of it ------------------------------------------------------------------------


class Call(NamedTuple):
    phase: str
    prompt: str
    said: dict[str, Any]
    """What came back, and what was made of it."""
    measured: tuple[Any, ...] | None
    """What it did to the files; None where one that was lost may have done some of it."""


class End(NamedTuple):
    """All that has to be the same, whoever died on the way."""

    state: dict[str, Any]
    trail: list[dict[str, Any]]
    calls: list[Call]
    """Those that were answered."""
    files: dict[str, str]
    effects: list[Effect]
    shown: dict[str, Any]
    """What the files beside the history say, without what a call that was lost adds."""


_SAME = ("status", "hold", "phase", "run", "suspending", "call", "failures", "limits", "former")
_SAME += ("attachments", "context", "result", "origin", "job_id", "restore", "not_before")


def end_of(scene: Scene) -> End:
    with scene.open() as home, Job(home, scene.name) as job:
        state = job.state()
        replay(job)
        told = {name: state[name] for name in _SAME}
        told["guidance"] = [each["text"] for each in state["guidance"]]
        told["cost_usd"] = round(state["cost_usd"], 6)
        told["points"] = [point_of(each) for each in state["points"]]
        calls = answered(list(history.calls(job)))
        trail = trail_of(state["trail"])
        with Queue(home) as queue:
            waiting = queue.waiting()
    folder = scene.history.parent
    manifest = json.loads((folder / "manifest.json").read_bytes())
    told_calls = json.loads((folder / "jobHistory.json").read_bytes())["interactions"]
    shown = {
        "status": manifest["status"],
        "trail": trail_of(manifest["history"]),
        "calls": sum(map(was_answered, told_calls)),
        "queue": waiting,
    }
    return End(told, trail, calls, files_in(scene.workspace), scene.world.effects(), shown)


def point_of(point: dict[str, Any]) -> dict[str, Any]:
    """Without its files: those of a call that the steward answered for are not measured anew."""
    ours = {
        name: value for name, value in point.items() if name not in ("sequence", "rollback_files")
    }
    return ours | {name: unnumbered(str(point[name])) for name in ("id", "checkpoint_id")}


def unnumbered(text: str) -> str:
    """Without the number of a call: one that was lost has had a number too."""
    return re.sub(r"-complete-\d+", "-complete-N", text)


def was_answered(call: dict[str, Any]) -> bool:
    return call["response"]["raw_response"] is not None


_SAID = ("status", "action", "evidence_files", "summary_for_supervisor", "raw_response")
_SAID += ("new_status", "violations", "error", "overruled")


def answered(calls: list[dict[str, Any]]) -> list[Call]:
    found: list[Call] = []
    half = False
    """Whether the call before was lost, with what it had done to the files."""
    for each in calls:
        if was_answered(each):
            found.append(call_of(each)._replace(measured=None) if half else call_of(each))
        half = not was_answered(each) and each["response"]["action"] == "STUCK"
    return found


def call_of(call: dict[str, Any]) -> Call:
    request, response = call["request"], call["response"]
    said = {name: response.get(name) for name in _SAID}
    measured = response.get("warnings"), response.get("measured_files")
    return Call(
        request["metadata"]["phase"],
        unmarked(unnumbered(request["prompt"])),
        said,
        None if call.get("is_simulated") else measured,
    )


def trail_of(trail: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without times, and without what a death adds: that it was noticed, and that the steward,
    who has nothing to say then, let the job go on."""
    kept: list[dict[str, Any]] = []
    for each in trail:
        event, says = each.get("event"), each.get("description")
        if event == "AUTOMATIC_RECOVERY" or (event == "CONTINUE" and says is None):
            continue
        entry = {name: value for name, value in each.items() if name != "timestamp"}
        kept.append(entry if says is None else entry | {"description": unnumbered(says)})
    return kept


def complaints(plan: Plan, expected: End, found: End) -> list[str]:
    """Where the end differs from that of the job which nobody interrupted."""
    says: list[str] = []
    times = Counter(found.effects)
    for effect, count in times.items():
        if count > 1 and not plan.may_repeat(effect.phase):
            says.append(f"P3: {effect.phase} {effect.index} was done {count} times")
    missing = [each for each in expected.effects if each not in times]
    says += [f"P1: {each.phase} {each.index} was never done" for each in missing]
    if not says and list(dict.fromkeys(found.effects)) != expected.effects:
        says.append(f"effects: {found.effects} instead of {expected.effects}")
    for name, ours, theirs in (
        ("trail", found.trail, expected.trail),
        ("history", found.calls, expected.calls),
    ):
        if len(ours) < len(theirs):
            says.append(f"P1: the {name} lacks {len(theirs) - len(ours)} of {len(theirs)} entries")
    for name in ("state", "trail", "files", "shown"):
        says += different(name, getattr(expected, name), getattr(found, name))
    for number, (one, other) in enumerate(zip(expected.calls, found.calls, strict=False)):
        unmeasured = one if other.measured else one._replace(measured=None)
        says += different(f"calls[{number}]", unmeasured._asdict(), other._asdict())
    return says


def different(name: str, expected: Any, found: Any) -> list[str]:
    """Each place where the two differ, as deep down as it can be told."""
    if expected == found:
        return []
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = {**expected, **found}
        pairs = [(f"{name}.{key}", expected.get(key), found.get(key)) for key in keys]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [
            (f"{name}[{n}]", *each) for n, each in enumerate(zip(expected, found, strict=True))
        ]
    else:
        return [f"{name}: {str(found)[:300]} instead of {str(expected)[:300]}"]
    return [each for pair in pairs for each in different(*pair)]


def died(pid: int) -> int | None:
    """The signal that a child died of, or None if it came to its end."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    if os.waitstatus_to_exitcode(status) != 0:
        raise AssertionError("a life ended with an error of its own")
    return None
