"""What a home stands on, and how its agents do: the questions that `doctor` asks.  Looks only."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.agent import Agent
from holdfast.agents.lifecycle import missing, name_of
from holdfast.agents.standing import CLOCKS_DIFFER, REPORT, Standing, fleet
from holdfast.errors import HoldfastError, NotOurs
from holdfast.interop.copies import FOLDER
from holdfast.layout import HOLDFAST, Part, is_scratch
from holdfast.ledger.book import Ledger, agents
from holdfast.ops.status import now
from holdfast.process import process_start
from holdfast.settings import SETTINGS
from holdfast.store.check import HARMLESS, REPAIRS, Finding, check

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.primitives import Problem

_DAY_FILE = re.compile(r"/(\d{4}-\d{2}-\d{2})(?:\.\d+)?\.jsonl$")
_LITTLE_SPACE = 256 << 20
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}


class Answer(NamedTuple):
    """An answer of `doctor`."""

    check: str
    state: str
    """ok, warning or broken."""
    detail: str
    fix: str = ""


def examine(home: Home) -> Iterator[Answer]:
    """Every question and its answer, the most important last, where the eye lands."""
    from holdfast.jobs.queue import known, troubles

    yield Answer("home", "ok", f"{home.path}, format {home.settings.format}")
    for name, near in home.settings.unread():
        fix = f"did you mean {near}?" if near else "docs/files.md lists what there is"
        yield Answer(SETTINGS, "warning", f"nobody reads {name}", fix)
    free = shutil.disk_usage(home.path).free
    if free < _LITTLE_SPACE:
        yield Answer("disk", "warning", f"{free >> 20} MiB free", "make room before it runs out")
    else:
        yield Answer("disk", "ok", f"{free >> 30} GiB free")
    kind = file_system_of(home.path)
    if kind in _REMOTE:
        fix = "move the home to a local disk: locks and fsync are not reliable over a network"
        yield Answer("file system", "warning", f"{kind} is not a local disk", fix)
    else:
        yield Answer("file system", "ok", kind)
    yield from _rights(home)
    yield from _inside_git(home)
    days = (_DAY_FILE.search(key) for key in home.keys())
    newest = max((day[1] for day in days if day), default="")
    if newest > home.day():
        fix = "set the clock; until then new lines go into the newest day's file"
        yield Answer("clock", "warning", f"it is {home.day()}, but {newest} is there", fix)
    else:
        yield Answer("clock", "ok", f"{home.day()} in {home.settings.timezone}")
    yield from _locks(home)
    yield from _of_fleet(home)
    found = list(troubles(home))
    for each in found:
        yield Answer(f"job {each.job}", "warning", each.what, each.fix)
    if not found and (jobs := known(home)):
        yield Answer("jobs", "ok", f"{len(jobs)} jobs, 0 abandoned")
    yield from _integrity(home)


def file_system_of(path: str) -> str:
    """The type of the file system that holds `path`, as the kernel's table of mounts says."""
    best, kind = "", "unknown"
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
            for row in table:
                _, place, its_kind, *_ = row.split(" ")
                inside = os.path.commonpath([place, os.path.realpath(path)]) == place
                if inside and len(place) >= len(best):
                    best, kind = place, its_kind
    except OSError:
        pass
    return kind


def _rights(home: Home) -> Iterator[Answer]:
    """Folders, locks and logs that this user may not write; logs of earlier days may be closed."""
    places = [(home.path, os.W_OK | os.X_OK)]
    for folder, names, files in os.walk(home.path):
        above = "" if folder == home.path else f"{os.path.relpath(folder, home.path)}/"
        names[:] = [name for name in names if not is_scratch(f"{above}{name}")]
        places += [(os.path.join(folder, name), os.W_OK | os.X_OK) for name in names]
        for name in files:
            day = _DAY_FILE.search(f"/{name}")
            if name.endswith((".lock", ".lease", ".jsonl")) and not (day and day[1] < home.day()):
                places.append((os.path.join(folder, name), os.W_OK))
    for path, right in places:
        if os.path.islink(path) or os.access(path, right, effective_ids=True):
            continue
        found, key = os.lstat(path), os.path.relpath(path, home.path)
        detail = f"cannot be written: mode {stat.S_IMODE(found.st_mode):o}, owner {found.st_uid}"
        yield Answer("home" if key == "." else key, "broken", detail, f"chmod u+rwX {path}")


def _inside_git(home: Home) -> Iterator[Answer]:
    from holdfast.git.worktree import worktree

    found = worktree(home.path)
    if found is None:
        yield Answer("git", "ok", "not inside a work tree")
        return
    told = [f"the home lies inside the work tree {found.top}"]
    if found.asked:
        tracked = f"{len(found.tracked)} of its files" if found.tracked else "nothing of it"
        told.append(f"git tracks {tracked}")
        told.append("ignored" if found.ignored else "not ignored")
        told.append(f"`{found.cleaned}` would remove what is not tracked")
    fix = (
        "move it out of the tree (HOLDFAST_HOME), or keep `git clean` and `git reset` away from it"
    )
    if found.tracked:
        fix += "; `git rm -r --cached` takes it out of git and leaves the files"
    yield Answer("git", "warning", "; ".join(told), fix)
    locks = [name for name in found.tracked if name.endswith((".lock", ".lease"))]
    if locks:
        some = ", ".join(locks[:3]) + (f" and {len(locks) - 3} more" if locks[3:] else "")
        fix = "`git rm --cached` them; a lock that comes out of git holds nothing"
        yield Answer("git locks", "warning", f"lock files are tracked: {some}", fix)


def _locks(home: Home) -> Iterator[Answer]:
    """Locks and leases whose holders are gone.  None of ours blocks: the kernel let go of it."""
    stale = 0
    for key, name in _hidden_leases(home):
        held = home.lease(key).holder()
        if held is not None and not held.alive:
            stale += 1
            detail = f"{name}: process {held.owner.pid} had it for {held.purpose!r} and is gone"
            yield Answer("lease", "ok", detail, "nothing to do: whoever wants it gets it")
    for key in home.keys():
        if key.endswith((".lock", ".pid")) and (pid := _pid_in(home, key)) is not None:
            stale += 1
            fix = "remove it, if no program of yours waits for it"
            yield Answer(key, "warning", f"a stale lock: process {pid} is gone", fix)
    if not stale:
        yield Answer("locks", "ok", "none is stale")


def _hidden_leases(home: Home) -> Iterator[tuple[str, str]]:
    """The keys of leases that are held by processes, and their files."""
    folders = {"", *(key.rpartition("/")[0] for key in home.keys())}
    for folder in sorted(folders):
        with home.opened_dir(folder) as directory:
            names = directory.names() if directory is not None else []
        for name in names:
            if name.startswith(".") and name.endswith(".lease"):
                stem = name[1:].removesuffix(".lease")
                where = f"{folder}/" if folder else ""
                yield f"{where}{stem}", f"{where}{name}"


def _pid_in(home: Home, key: str) -> int | None:
    """The process that a lock file of somebody else names, if it is gone."""
    try:
        text = home.document(key).read()
    except HoldfastError:
        return None
    found = re.fullmatch(rb"\s*([0-9]{1,9})\s*", text.data) if text is not None else None
    if found is None:
        return None
    pid = int(found[1])
    return None if process_start(pid) else pid


# --- agents ---------------------------------------------------------------------------------


def _of_fleet(home: Home) -> Iterator[Answer]:
    """What is wrong with each agent, or that nothing is."""
    count = troubled = 0
    for one in fleet(home, now(home)):
        found = [*_files(home, one), *_conduct(one)]
        count, troubled = count + 1, troubled + bool(found)
        yield from (Answer(one.agent, *each) for each in found)
    if not troubled:
        yield Answer("agents", "ok", f"{count} agents, none of them in trouble")


def has_state(one: Standing) -> bool:
    """Whether an agent has more than a ledger, and so should have all files of its folder."""
    return one.report.state is not None


def _files(home: Home, one: Standing) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the folder of an agent: how bad, what, and what to do about it."""
    if has_state(one):
        try:
            with Agent(home, one.agent) as agent:
                lacks = [name_of(agent, part) for part in missing(home, agent)]
                notes = home.document(agent.key("notes")).read()
        except NotOurs as error:
            yield "broken", f"alien: {error.message}", "look at it, then move it away"
            return
        if lacks:
            fix = "`holdfast doctor --fix` makes them, and overwrites nothing"
            yield "warning", f"missing: {', '.join(lacks)}", fix
        if notes is not None and not notes.data.strip():
            fix = "restore it from a backup, or remove it: `holdfast doctor --fix` makes a new one"
            yield "warning", "memory.md is empty", fix
    if one.report.state == "unreadable":
        fix = "`holdfast doctor --fix` folds it anew from the journal"
        yield "broken", f"{REPORT} is unreadable: {one.report.detail}", fix
    for what in one.lost:
        yield "broken", what, "compare with a backup: `holdfast check` names the place"


def _conduct(one: Standing) -> Iterator[tuple[str, str, str]]:
    """What is wrong with what an agent does.  That its last task failed is for `status` to tell."""
    for session in one.crashed:
        role = f" as {session['role']}" if session["role"] else ""
        fix = "`holdfast doctor --fix` puts it on record; so would the next start"
        yield "warning", f"session {session['session_id']}{role} crashed", fix
    if one.report.state == "stale":
        fix = "wake it with `holdfast run`, or raise stale_after in holdfast.toml"
        yield "warning", f"stale: {one.report.detail}", fix
    note = one.complaint
    if "in the future" in note or (one.report.age or 0.0) < -CLOCKS_DIFFER:
        fix = "set the clock of this machine, or of the one that wrote it"
        yield "warning", note or f"{REPORT} is from the future", fix
    elif note.startswith("offline while"):
        fix = "look for its process; `holdfast ledger orphans` lists what it left undone"
        yield "warning", note, fix
    if one.blocked_by:
        fix = f"help it, then `holdfast session set --agent {one.agent} --blocked-by ''`"
        yield "warning", f"blocked by {one.blocked_by}", fix
    for task, reason in one.parked:
        fix = f"see why, then `holdfast task reopen|drop --agent {one.agent} ID`"
        yield "warning", f"{task} is parked: {reason}", fix


# --- files ----------------------------------------------------------------------------------


def proved(home: Home) -> Iterator[Finding]:
    """All that is broken: what the store says, and copies of imported files."""
    for each in check(home):
        if not _is_unused_journal(home, each) and not is_scratch(each.key):
            yield each
    for agent in agents(home):
        # What stands there instead of a file is among the findings of the store.
        with suppress(NotOurs):
            for problem in _with_imported(home, agent):
                yield Finding(problem.kind, problem.segment, problem.detail, REPAIRS[problem.kind])
    above = HOLDFAST.above("job")
    inside = (key.removeprefix(f"{above}/").split("/") for key in home.keys(above))
    for job in sorted({parts[0] for parts in inside if parts[1:2] == [FOLDER]}):
        from holdfast.interop.jobs import problems

        for problem in problems(home, job):
            yield Finding(problem.kind, problem.segment, problem.detail, REPAIRS[problem.kind])


def _is_unused_journal(home: Home, found: Finding) -> bool:
    """Whether a journal is empty because it never had a line: so say the views folded from it."""
    slot = HOLDFAST.slot(found.key)
    if found.kind != "empty" or slot is None or slot.part != "journal" or slot.rest:
        return False
    parts: tuple[Part, ...] = ("report", "session", "metrics")
    stamps = [home.cell(HOLDFAST.path(part, slot.name)).peek() for part in parts]
    seen = [stamp.cursor.seq for stamp in stamps if stamp is not None]
    return bool(seen) and not any(seen)


def _with_imported(home: Home, agent: str) -> Iterator[Problem]:
    with Ledger(home, agent) as ledger:
        if ledger.has_imports():
            from holdfast.interop import ledgers

            yield from ledgers.problems(ledger, home)
    if home.log(HOLDFAST.path("journal", agent)).segments():
        from holdfast.interop import agents as states

        yield from states.problems(home, agent)


def _integrity(home: Home) -> Iterator[Answer]:
    found = list(proved(home))
    for each in found:
        if each.kind not in HARMLESS:
            where = _target(home, each.key) if each.kind == "alien" else ""
            yield Answer(each.key, "broken", f"{each.kind}: {each.detail}{where}", each.repair)
    harmless = sum(each.kind in HARMLESS for each in found)
    traces = f"; {harmless} harmless traces of crashes" if harmless else ""
    if all(each.kind in HARMLESS for each in found):
        yield Answer("integrity", "ok", f"every file is what was written{traces}")


def _target(home: Home, key: str) -> str:
    """Where a symbolic link leads."""
    path = os.path.join(home.path, key)
    if not os.path.islink(path):
        return ""
    gone = "" if os.path.exists(path) else ", which is not there"
    return f"; it leads to {os.readlink(path)}{gone}"
