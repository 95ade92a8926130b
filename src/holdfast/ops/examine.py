"""What a home stands on: the questions that `doctor` asks.  Looks only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.layout import HOLDFAST
from holdfast.ledger.book import Ledger, agents
from holdfast.store.check import HARMLESS, REPAIRS, Finding, check

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.primitives import Problem

_DAY_FILE = re.compile(r"/(\d{4}-\d{2}-\d{2})(?:\.\d+)?\.jsonl$")
_LITTLE_SPACE = 256 << 20
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}


class Answer(NamedTuple):
    check: str
    state: str
    """ok, warning or broken."""
    detail: str
    fix: str = ""

    def as_row(self) -> dict[str, str]:
        return self._asdict()


def examine(home: Home) -> Iterator[Answer]:
    """Every question and its answer, the most important last, where the eye lands."""
    yield Answer("home", "ok", f"{home.path}, format {home.settings.format}")
    yield _space(home)
    yield _file_system(home)
    yield _inside_git(home)
    yield _clock(home)
    yield from _integrity(home)


def _space(home: Home) -> Answer:
    free = shutil.disk_usage(home.path).free
    if free < _LITTLE_SPACE:
        return Answer("disk", "warning", f"{free >> 20} MiB free", "make room before it runs out")
    return Answer("disk", "ok", f"{free >> 30} GiB free")


def _file_system(home: Home) -> Answer:
    kind = file_system_of(home.path)
    if kind in _REMOTE:
        fix = "move the home to a local disk: locks and fsync are not reliable over a network"
        return Answer("file system", "warning", f"{kind} is not a local disk", fix)
    return Answer("file system", "ok", kind)


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


def _inside_git(home: Home) -> Answer:
    tree = home.path
    while not os.path.exists(os.path.join(tree, ".git")):
        if tree == os.path.dirname(tree):
            return Answer("git", "ok", "not inside a work tree")
        tree = os.path.dirname(tree)
    fix = "move it, or keep it out of reach of `git clean` and `git reset`"
    return Answer("git", "warning", f"the home lies inside the work tree {tree}", fix)


def _clock(home: Home) -> Answer:
    days = (_DAY_FILE.search(key) for key in home.keys())
    newest = max((day[1] for day in days if day), default="")
    if newest > home.today():
        fix = "set the clock; meanwhile new lines go into the newest day's file"
        return Answer("clock", "warning", f"it is {home.today()}, but {newest} is there", fix)
    return Answer("clock", "ok", f"{home.today()} in {home.settings.timezone}")


def proved(home: Home) -> Iterator[Finding]:
    """All that is broken: what the store says, and copies of imported files."""
    yield from check(home)
    for agent in agents(home):
        for problem in _with_imported(home, agent):
            yield Finding(problem.kind, problem.segment, problem.detail, REPAIRS[problem.kind])


def _with_imported(home: Home, agent: str) -> Iterator[Problem]:
    with Ledger(home, agent) as ledger:
        if ledger.has_imports():
            from holdfast.ledger import adopt as ledgers

            yield from ledgers.problems(ledger, home)
    if home.document(HOLDFAST.path("journal", agent)).read() is not None:
        from holdfast.agents import adopt as states

        yield from states.problems(home, agent)


def _integrity(home: Home) -> Iterator[Answer]:
    found = list(proved(home))
    for each in found:
        if each.kind not in HARMLESS:
            yield Answer(each.key, "broken", f"{each.kind}: {each.detail}", each.repair)
    harmless = sum(each.kind in HARMLESS for each in found)
    traces = f"; {harmless} harmless traces of crashes" if harmless else ""
    if all(each.kind in HARMLESS for each in found):
        yield Answer("integrity", "ok", f"every file is what was written{traces}")
