"""Whether the simulator's journal is what really happens, by asking strace.

The same words are played once on the simulated file system and once on a real directory
under strace.  Both lists of changes and syncs must be equal, and nothing outside of the
directory may be changed: input and output that bypass the vfs would show here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from prove.frame import child_environment, scratch
from prove.schedule import SimClock
from prove.sim import ROOT, Op, SimFs
from prove.workloads import NOON, Station, Writer

WORD = "aaegtdburcvwsleammk"
ROTATE_AT = 1200
_MARK = "holdfast-truth-mark"
_CALLS = (
    "openat,open,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,fallocate,fsync,"
    "fdatasync,sync,syncfs,sync_file_range,link,linkat,rename,renameat,renameat2,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,sendfile,copy_file_range,mknod,mknodat"
)
_LINE = re.compile(r"(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_FD = re.compile(r"(\d+|AT_FDCWD)<([^>]*)>")


def differences() -> list[str]:
    """Where the two lists differ; empty if they are the same."""
    simulated, real = in_simulation(), under_strace()
    found = [
        f"call {n}: simulated {ours!r}, real {theirs!r}"
        for n, (ours, theirs) in enumerate(zip(simulated, real, strict=False))
        if ours != theirs
    ]
    if len(simulated) != len(real):
        found.append(f"{len(simulated)} simulated calls, {len(real)} real ones")
    return found[:5]


# --- simulated ------------------------------------------------------------------------------


class _NoJournal:
    """Takes the notes of a writer on a real directory."""

    def note(self, *_: object) -> None:
        return None


def in_simulation() -> list[str]:
    fs = SimFs()
    vfs = fs.process()
    _play(Station(vfs, SimClock(NOON), ROTATE_AT), fs)
    return _told(fs.journal)


def _play(station: Station, notes: SimFs | _NoJournal) -> None:
    writer = Writer(notes, 0, "t", station)  # type: ignore[arg-type]
    writer.work(WORD)
    station.view.close()
    if writer.surprises:
        raise RuntimeError(writer.surprises[0])


def _told(journal: list[Op]) -> list[str]:
    """The journal as text, files by the name they were made with."""
    paths = {ROOT: ""}
    rows: list[str] = []
    for op in journal:
        here = paths.get(op.inode, "?")
        match op.kind:
            case "mkdir" | "create":
                paths[op.detail[1]] = f"{here}/{op.detail[0]}"
                rows.append(f"{op.kind} {here}/{op.detail[0]}")
            case "write":
                rows.append(f"write {here} {len(op.detail[1])}")
            case "truncate":
                rows.append(f"truncate {here} {op.detail[0]}")
            case "sync" | "dirsync":
                rows.append(f"{op.kind} {here or '/'}")
            case "link":
                rows.append(f"link {here}/{op.detail[0]}")
            case "unlink":
                rows.append(f"unlink {here}/{op.detail[0]}")
            case "rename":
                rows.append(f"rename {here}/{op.detail[0]} {here}/{op.detail[1]}")
            case "exchange":
                rows.append(f"rename {here}/{op.detail[0]} {here}/{op.detail[2]}")
            case "move":
                old, target, new, _ = op.detail
                rows.append(f"rename {here}/{old} {paths.get(target, '?')}/{new}")
            case _:
                pass
    return rows


# --- real -----------------------------------------------------------------------------------


def under_strace() -> list[str]:
    with scratch("truth") as place:
        home, log = place / "home", place / "strace"
        home.mkdir()
        watched = ["strace", "-f", "-y", "-qq", "-s", "64", "-o", str(log)]
        watched += ["-e", f"trace={_CALLS}", sys.executable, "-m", "prove.truth", str(home)]
        subprocess.run(
            watched,
            check=True,
            env=child_environment(Path(__import__("holdfast").__file__).parent.parent),
            capture_output=True,
            timeout=60,
        )
        rows = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return _parse(rows, str(home))


def _parse(rows: list[str], home: str) -> list[str]:
    marks = [n for n, row in enumerate(rows) if _MARK in row]
    known: dict[str, str] = {}
    told: list[str] = []
    for row in rows[marks[0] + 1 : marks[1]]:
        found = _LINE.match(row)
        if found is None:
            raise ValueError(f"strace says something unknown: {row}")
        call, arguments, returned = found.groups()
        if int(returned) >= 0 and (said := _one(call, arguments, home, known)):
            told.append(said)
    return told


def _one(call: str, arguments: str, home: str, known: dict[str, str]) -> str | None:
    names = re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)
    fds = _FD.findall(arguments)
    where = fds[0][1].removeprefix(home).removesuffix(" (deleted)") if fds else ""
    inside = bool(fds) and (fds[0][1] + "/").startswith(home + "/")
    if call == "openat":
        return _opened(arguments, names[0], where, inside, known)
    if not inside:
        return f"{call} outside of the home: {arguments[:80]}"
    first = known.get(where, where)  # the name it was made with
    match call:
        case "write" | "pwrite64":
            count = re.findall(r", (\d+)(?:, \d+)?$", arguments)
            return f"write {first} {count[0]}"
        case "fdatasync":
            return f"sync {first}"
        case "fsync":
            return f"dirsync {where or '/'}"
        case "ftruncate":
            return f"truncate {first} {arguments.rpartition(', ')[2]}"
        case "mkdirat":
            return f"mkdir {where}/{names[0]}"
        case "linkat":
            known[f"{where}/{names[1]}"] = known[f"{where}/{names[0]}"]
            return f"link {where}/{names[1]}"
        case "unlinkat":
            known.pop(f"{where}/{names[0]}", None)
            return f"unlink {where}/{names[0]}"
        case "renameat" | "renameat2":
            target = fds[1][1].removeprefix(home)
            known[f"{target}/{names[1]}"] = known.pop(f"{where}/{names[0]}")
            return f"rename {where}/{names[0]} {target}/{names[1]}"
        case _:
            return f"{call} {arguments[:80]}"


def _opened(flags: str, name: str, where: str, inside: bool, known: dict[str, str]) -> str | None:
    if not inside:
        writes = re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", flags)
        return f"open outside of the home: {name}" if writes else None
    path = f"{where}/{name}"
    if "O_CREAT" not in flags or path in known:
        return None
    known[path] = path
    return f"create {path}"


def main(home: str) -> None:
    from holdfast.store.vfs import RealVfs  # noqa: PLC0415 - the child only

    station = Station(RealVfs(), SimClock(NOON), ROTATE_AT, home)
    # What happens once in a process belongs to starting, not to the words.
    os.write(2, f"{_MARK}\n".encode())
    _play(station, _NoJournal())
    os.write(2, f"{_MARK}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
