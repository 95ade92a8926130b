"""What a power cut may leave of a journal: a weak model of disks and file systems.

Until a file is synced, its new bytes may be absent, cut anywhere, NULs up to the full size,
or there in some blocks and not in others.  Until a directory is synced, any subset of the
changes to its entries may have happened.  A rename into another directory is never half lost:
the new name is there or the old one, perhaps both; syncing the new directory makes the new name
durable, syncing the old one makes it all.  Syncing a file makes its bytes durable but not its
name; syncing a directory makes names durable but not bytes.  After a sync that failed the
bytes may be there or not, whatever a later sync says.

Weaker than the file systems we know of, on purpose: what holds here holds there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from prove.sim import ROOT, Op, State

BLOCK = 64
"""What arrives or not when a file grows; small, so that short lines lie across several."""
SECTOR = 512
"""What disks overwrite as one: durable bytes become others by whole sectors only."""
Change = tuple[tuple[int, str, int | None], ...]
"""Directory, name and new inode; what arrives together or not at all."""


class Disk:
    """The durable part of a machine, and what is on its way there."""

    def __init__(self, state: State, rng: Random) -> None:
        self._rng = rng
        self._files: dict[int, tuple[bytes, ...]] = {
            inode: (data,) for inode, data in state.files.items()
        }
        self._dirs: dict[int, dict[str, int]] = {i: dict(e) for i, e in state.dirs.items()}
        self._pending: dict[int, list[tuple[int, bytes | None]]] = {}
        self._changes: list[tuple[int, Change]] = []
        self._options: dict[int, tuple[bytes, ...]] = {}

    def apply(self, op: Op) -> bool:
        """Take in the next operation; whether it can change what a crash leaves behind."""
        kind, _, inode, detail = op
        match kind:
            case "write":
                self._touch(inode, detail[0], detail[1])
            case "truncate":
                self._touch(inode, detail[0], None)
            case "move":
                self._move(inode, *detail)
            case "sync":
                self._settle(inode, keep_old=False)
            case "syncfail":
                self._settle(inode, keep_old=True)
            case "dirsync":
                self._settle_directory(inode)
            case _:
                return self._enter_change(kind, inode, detail)
        return True

    def _enter_change(self, kind: str, inode: int, detail: tuple[Any, ...]) -> bool:
        """Take in what happened to the entries of one directory, if anything did."""
        match kind:
            case "create" | "mkdir" | "link":
                if kind == "create":
                    self._files[detail[1]] = (b"",)
                if kind == "mkdir":
                    self._dirs[detail[1]] = {}
                entries = [detail]
            case "unlink":
                entries = [(detail[0], None)]
            case "rename":
                old, new, moved = detail
                entries = [(old, None), (new, moved)]
            case "exchange":
                one, first, other, second = detail
                entries = [(one, first), (other, second)]
            case _:
                return False
        self._changes.append((inode, tuple((inode, name, found) for name, found in entries)))
        return True

    def _touch(self, inode: int, at: int, data: bytes | None) -> None:
        self._pending.setdefault(inode, []).append((at, data))
        self._options.pop(inode, None)

    def _settle(self, inode: int, *, keep_old: bool) -> None:
        pending = self._pending.pop(inode, None)
        self._options.pop(inode, None)
        if pending:
            after = tuple(replay(base, pending) for base in self._files[inode])
            self._files[inode] = _distinct((*self._files[inode], *after) if keep_old else after)

    def _move(self, source: int, old: str, target: int, new: str, moved: int) -> None:
        if source == target:
            self._changes.append((source, ((source, new, moved), (source, old, None))))
            return
        self._changes.append((target, ((target, new, moved),)))
        self._changes.append((source, ((target, new, moved), (source, old, None))))

    def _settle_directory(self, inode: int) -> None:
        rest: list[tuple[int, Change]] = []
        for where, change in self._changes:
            if where == inode:
                _enter(self._dirs, change)
            else:
                # The other half of a move into this directory: durable by now, or undone.
                rest.append((where, tuple(each for each in change if each[0] != inode)))
        self._changes = rest

    # -- enumerating -------------------------------------------------------------------

    def states(self, most: int) -> Iterator[State]:
        """Up to `most` states that a crash now may leave; all of them if there are no more."""
        uncertain = self._uncertain()
        options = [self._options_of(inode) for inode in uncertain]
        count = 1 << len(self._changes)
        for choice in options:
            count *= len(choice)
        for picks, mask in self._choices(options, count, most):
            yield self._build(dict(zip(uncertain, picks, strict=True)), mask)

    def _uncertain(self) -> list[int]:
        return [
            inode for inode in self._files if inode in self._pending or len(self._files[inode]) > 1
        ]

    def _choices(
        self, options: list[tuple[bytes, ...]], count: int, most: int
    ) -> Iterator[tuple[Sequence[bytes], int]]:
        masks = 1 << len(self._changes)
        if count <= most:
            for *picks, mask in product(*options, range(masks)):
                yield picks, mask
            return
        rng = self._rng
        # The two ends first: nothing arrived, everything arrived.
        yield [choice[0] for choice in options], 0
        yield [choice[-1] for choice in options], masks - 1
        for _ in range(most - 2):
            mask = rng.choice((0, masks - 1, rng.randrange(masks), rng.randrange(masks)))
            yield [self._pick(choice) for choice in options], mask

    def _pick(self, choice: tuple[bytes, ...]) -> bytes:
        # Old, new, or anything in between; the ends are the likely ones.
        roll = self._rng.random()
        if roll < 0.2:
            return choice[0]
        return choice[-1] if roll < 0.45 else self._rng.choice(choice)

    def _build(self, picked: Mapping[int, bytes], mask: int) -> State:
        dirs = {inode: dict(entries) for inode, entries in self._dirs.items()}
        for position, (_, change) in enumerate(self._changes):
            if mask >> position & 1:
                _enter(dirs, change)
        kept_dirs: dict[int, Mapping[str, int]] = {}
        kept_files: dict[int, bytes] = {}
        todo = [ROOT]
        while todo:
            here = todo.pop()
            kept_dirs[here] = dirs[here]
            for inode in dirs[here].values():
                if inode in dirs:
                    todo.append(inode)
                elif inode not in kept_files:
                    data = picked.get(inode)
                    kept_files[inode] = self._files[inode][0] if data is None else data
        return State(kept_files, kept_dirs)

    def _options_of(self, inode: int) -> tuple[bytes, ...]:
        found = self._options.get(inode)
        if found is None:
            pending = self._pending.get(inode, [])
            every = [
                data for base in self._files[inode] for data in variants(base, pending, self._rng)
            ]
            # The newest content stays last, even if a variant before happened to equal it.
            found = (*_distinct(data for data in every if data != every[-1]), every[-1])
            self._options[inode] = found
        return found


def _distinct(items: Iterator[bytes] | Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(items))


def _enter(dirs: dict[int, dict[str, int]], change: Change) -> None:
    for where, name, inode in change:
        if inode is None:
            dirs[where].pop(name, None)
        else:
            dirs[where][name] = inode


def replay(base: bytes, pending: Sequence[tuple[int, bytes | None]]) -> bytes:
    """The content when all of `pending` arrived."""
    for at, data in pending:
        if data is None:
            base = base[:at].ljust(at, b"\0")
        else:
            base = base[:at].ljust(at, b"\0") + data + base[at + len(data) :]
    return base


def variants(
    base: bytes, pending: Sequence[tuple[int, bytes | None]], rng: Random
) -> Iterator[bytes]:
    """What may be left of a file; the old content comes first, the new one last."""
    yield base
    if not pending:
        return
    boundaries: set[int] = set()
    for count in range(1, len(pending)):
        between = replay(base, pending[:count])
        boundaries.add(len(between))
        yield between
    full = replay(base, pending)
    low = min(at for at, _ in pending)
    high = max(len(full), max(at + len(data or b"") for at, data in pending))
    cuts = {low, low + 1, high - 1, *boundaries}
    cuts |= {rng.randint(low, high) for _ in range(3)} if high > low else set()
    old = base.ljust(len(full), b"\0")
    for cut in sorted(_whole_sectors(cuts, len(base))):
        if cut <= len(full):
            yield full[:cut] + base[cut:]  # cut off
            yield full[:cut] + old[cut:]  # the size arrived, the rest of the bytes did not
    if low >= len(base):
        yield from _block_subsets(full, old, low, rng)
    yield full


def _whole_sectors(cuts: Iterable[int], durable: int) -> set[int]:
    return {cut if cut >= durable else cut // SECTOR * SECTOR for cut in cuts}


def _block_subsets(full: bytes, old: bytes, low: int, rng: Random) -> Iterator[bytes]:
    first, last = low // BLOCK, (len(full) - 1) // BLOCK
    if last <= first:
        return
    blocks = range(first, last + 1)
    subsets: list[set[int]] = [{last}, set(blocks) - {first}]
    subsets += [{block for block in blocks if rng.random() < 0.5} for _ in range(2)]
    for present in subsets:
        pieces = [full[: first * BLOCK]]
        for block in blocks:
            source = full if block in present else old
            pieces.append(source[block * BLOCK : (block + 1) * BLOCK])
        yield b"".join(pieces)
