"""What the files of a tree are: whose layout it has, and which part each file is.

By its path first: a tree is known by where its files lie, also when only a part of it is given
(one agent's folder, one ledger).  The content has to agree.  Where no path tells, the content
alone does: a folder full of what a stop hook wrote, or of ledgers by day.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.contracts.kinds import kind
from holdfast.errors import ConfigError, HoldfastError, NotFound
from holdfast.interop import flags, jobs
from holdfast.interop.copies import Foreign
from holdfast.interop.records import pieces
from holdfast.interop.tree import File, Tree
from holdfast.layout import LOGIST, LUKA, PRESETS, TELEO, Layout, Part, Slot, preset
from holdfast.ledger.foreign import as_entry
from holdfast.validate.scan import Scan

if TYPE_CHECKING:
    from holdfast.contracts.kind import Kind

IMPORTABLE: dict[str, tuple[Part, ...]] = {
    TELEO.name: (
        *("report", "tasks", "session", "notes", "journal", "metrics", "inbox"),
        *("stops", "flags"),
    ),
    LUKA.name: ("ledger", "status", "summaries"),
    LOGIST.name: ("job", "jobs"),
}
_KINDS: dict[Part, str] = {"inbox": "message", "stops": "legacy-session", "jobs": "job-index"}
"""What files of a part are, where that is not called like the part."""
_FOLDERS: dict[Part, str] = {"inbox": ".json", "stops": ".json", "summaries": ".md"}
_DAY_FILE = re.compile(r"(?:^|/)\d{4}-\d{2}-\d{2}[^/]*\.jsonl[^/]*$")
_LEVELS = 4
"""So many folders above what was given may belong to the tree."""
_LOOKED_AT = 40
_SAMPLE = 1 << 16


class Member(NamedTuple):
    """A file, and what it is in the tree."""

    file: File
    slot: Slot


class Recognised(NamedTuple):
    layout: Layout
    members: list[Member]
    others: list[File]
    """Files that are no part of such a tree."""


def recognise(tree: Tree, named: str | None) -> Recognised:
    """The tree by the layout that was named, or by the one that fits best."""
    layouts = [preset(named)] if named is not None else [PRESETS[name] for name in IMPORTABLE]
    if layouts[0].name not in IMPORTABLE:
        raise ConfigError(
            f"a tree of {named} cannot be imported", hint=f"trees that can: {', '.join(IMPORTABLE)}"
        )
    found = [_by_path(tree, layout, sure=named is not None) for layout in layouts]
    best = max(found, key=lambda each: each[0])
    if best[0]:
        return best[1]
    for layout in layouts:
        if members := list(_by_content(tree, layout)):
            known = {member.file.path for member in members}
            others = [file for file in tree.files if file.path not in known]
            return Recognised(layout, members, others)
    trees = " or ".join(layout.name for layout in layouts)
    raise NotFound(
        f"nothing of a tree of {trees} in {tree.path}",
        hint="name the folder that holds the agents or jobs; "
        "`holdfast validate` says what files are",
        path=tree.path,
    )


# --- by path --------------------------------------------------------------------------------


def _by_path(tree: Tree, layout: Layout, *, sure: bool) -> tuple[int, Recognised]:
    """How many files are surely of this layout, and what they are."""
    above = [part for part in tree.path.split("/") if part]
    best = (0, Recognised(layout, [], tree.files))
    for level in range(min(_LEVELS, len(above) + 1)):
        prefix = "".join(f"{folder}/" for folder in above[len(above) - level :])
        members, others = list[Member](), list[File]()
        for file in tree.files:
            slot = layout.slot(prefix + file.path)
            if slot is not None and _is_part(layout, slot):
                members.append(Member(file, slot))
            else:
                others.append(file)
        # As many of the first files as hold what their names promise.
        readable = [each for each in members if not each.file.trouble][:_LOOKED_AT]
        score = len(members) if sure else sum(_looks_right(tree, each) for each in readable)
        if score > best[0]:
            best = (score, Recognised(layout, members, others))
    return best


def _is_part(layout: Layout, slot: Slot) -> bool:
    if slot.part not in IMPORTABLE[layout.name]:
        return False
    if slot.part == "ledger":
        # A file right in the folder of ledgers is one of several agents.
        return "/" not in slot.rest and ".jsonl" in (slot.rest or slot.name)
    if slot.part == "flags":
        return "/" not in slot.rest and slot.rest.startswith(flags.PREFIX)
    if slot.part == "job":
        return slot.rest in jobs.PARTS
    if ending := _FOLDERS.get(slot.part):
        return "/" not in slot.rest and slot.rest.endswith(ending)
    return slot.rest == ""


def _looks_right(tree: Tree, member: Member) -> bool:
    part = member.slot.part
    if part in ("notes", "summaries"):
        return part == "summaries"  # any text could be notes
    if part == "flags":
        return _is_flag(tree, member.file)
    meant = jobs.kind_of(member.slot.rest) if part == "job" else kind(_KINDS.get(part, part))
    return _looks_like(meant, tree, member.file)


def _is_flag(tree: Tree, file: File) -> bool:
    try:
        return bool(flags.flags_in(Foreign(file.path, tree.read(file.path))))
    except (HoldfastError, ValueError):
        return False


def _looks_like(meant: Kind, tree: Tree, file: File) -> bool:
    try:
        data = tree.read(file.path)
    except HoldfastError:
        return False
    if len(data) > _SAMPLE and file.path.endswith("l"):
        data = data[: data.rfind(b"\n", 0, _SAMPLE) + 1] or data
    first: Any = next((found.value for found in Scan(data).values()), None)
    return first is not None and meant.looks(first)


# --- by content -----------------------------------------------------------------------------


def _by_content(tree: Tree, layout: Layout) -> Iterator[Member]:
    named = [e for e in tree.files if e.path.rpartition("/")[2].startswith(flags.PREFIX)]
    # One that can be read shows what the others are meant to be.
    if layout is TELEO and any(_is_flag(tree, each) for each in named if not each.trouble):
        yield from (Member(each, Slot("flags", "", each.path)) for each in named)
    for file in tree.files:
        if file.trouble:
            continue
        if layout is TELEO and file.path.endswith(".json"):
            part, known = "stops", _looks_like(kind("legacy-session"), tree, file)
        elif layout is LUKA and ".jsonl" in file.path:
            known = _looks_like(kind("ledger"), tree, file) or _DAY_FILE.search(file.path)
            part = "ledger"
        else:
            continue
        if known:
            yield Member(file, Slot(part, "", file.path))


def owner_of(tree: Tree, member: Member) -> str:
    """The agent or job that a file belongs to; a ledger that lies in no agent's folder is of the
    agent of most of its entries."""
    slot = member.slot
    if slot.part != "ledger" or (slot.name and slot.rest):
        return slot.name
    try:
        data = tree.read(member.file.path)
    except HoldfastError:
        return member.file.path.partition(".")[0]
    found = Counter[str]()
    for piece in pieces(data):
        agent = as_entry(piece.record).get("agent") if piece.record is not None else None
        if isinstance(agent, str):
            found[agent.lower()] += 1
    if found:
        return min(found, key=lambda name: (-found[name], name))
    folders = [*tree.path.split("/"), *member.file.path.split("/")[:-1]]
    named = [folder for folder in folders if folder and folder != "ledger"]
    return named[-1] if named else member.file.path.partition(".")[0]
