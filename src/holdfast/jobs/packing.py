"""A job that is over, packed: its history compressed, its files in one archive.

    files.tar.zst · result.patch · the line `archived` with their hashes · the files are removed ·
    older segments of the history are compressed

The line comes after what it names and before anything is removed, so the next call goes on after a
crash.  It begins a new segment: all that was recorded before it can be compressed.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import tarfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import zstandard

from holdfast.codec import Record
from holdfast.contracts.job_states import FINAL
from holdfast.errors import BadValue, Corrupt, HoldfastError, NotFound, StorageError, typed
from holdfast.jobs import history
from holdfast.jobs.place import folder_of, workspace_of
from holdfast.jobs.state import Refused, capped, refusal
from holdfast.layout import JOB_FILES, JOB_LINK
from holdfast.store.failpoints import hit
from holdfast.workspace.safedir import remove_folder
from holdfast.workspace.snapshots import exactly
from holdfast.workspace.source import files_gone

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.jobs.job import State as JobState
    from holdfast.store.primitives import Cursor, Decision

FILES, PATCH = "files.tar.zst", "result.patch"
_LEFT_OUT = frozenset({".files.lock", "aside", "fresh"})
_REPOSITORY = "repository.git"
_CHUNK = 1 << 20
_MOST_PATCH = 1 << 30
_TOTAL = re.compile(r" \d+ files? changed(, \d+ insertions?\(\+\))?(, \d+ deletions?\(-\))?\n")


class Packed(NamedTuple):
    """What became of a job."""

    files: Record | None
    """`name`, `sha256`, `bytes` of the archive; None if the job has no files of its own."""
    segments: list[str]
    """Parts of the history that were compressed now."""
    applied: bool


def packed_in(job: Job) -> str | None:
    """The archive that has the files of a job, where they are nowhere else."""
    return folder_of(job, FILES) if _archived(job).get("files") and not has_files(job) else None


def _archived(job: Job) -> Record:
    """What the history says of how the job was packed; nothing if it was not."""
    return job.state()["archived"] or {}


def check_packable(state: JobState) -> None:
    if state["status"] not in FINAL:
        raise refusal(state, "archive", why="only a job that is over can be packed")


def pack(job: Job) -> Packed:
    """Pack a job that is over; what was begun before is completed."""
    check_packable(job.state())
    job.own(f"job archive {job.name}")
    try:
        before = job.state()["archived"]
        if before is None:
            history.show(job)
            _record(job, _packed_files(job))
            hit("job.packed")
        if _archived(job).get("files"):
            with typed("removing the files of the job", job.key):
                with suppress(FileNotFoundError):
                    os.unlink(folder_of(job, JOB_LINK))  # noqa: TID251 - the link is for people
                with suppress(FileNotFoundError):
                    remove_folder(folder_of(job, JOB_FILES))
        segments = [each.segment for each in job.log.archive() if not each.left]
        job.catch_up()
    finally:
        job.disown()
    return Packed(_archived(job).get("files"), segments, before is None or bool(segments))


def _packed_files(job: Job) -> Record:
    """Write the archive and the patch; what the line says of them."""
    folder = folder_of(job, JOB_FILES)
    if job.spec.isolation == "none" or not os.path.isdir(f"{folder}/{JOB_LINK}"):
        return {}
    packed: Record = {}
    workspace = workspace_of(job)
    with suppress(HoldfastError):
        packed |= _in_short(workspace.diff())
        patch = workspace.diff(patch=True).encode("utf-8", "surrogateescape")
        packed["patch"] = _put(job, PATCH, [patch])
    packed["files"] = _put(job, FILES, _packed(job))
    _check(job, packed["files"])
    return packed


def _in_short(changes: str) -> Record:
    """What was changed, for one line of the history: the patch has it all."""
    lines = [f"{line}\n" for line in changes.split("\n") if line]
    at = next((n for n, line in enumerate(lines) if _TOTAL.fullmatch(line)), len(lines))
    text = ""
    for some in (lines[:at], lines[at : at + 1], lines[at + 1 :]):
        kept = capped(some)
        more = len(some) - len(kept)
        text += "".join(kept)
        text += f" … and {more} more, which `job diff --patch` has\n" if more else ""
    return {"changes": text, "changed_files": at}


def _put(job: Job, name: str, pieces: Iterable[bytes]) -> Record:
    """A file in the folder of the job, there whole or not at all."""
    blob = job.home.blob(f"{job.key}/{name}")
    digest = blob.put(pieces)
    return {"name": name, "sha256": digest, "bytes": blob.size()}


def _packed(job: Job) -> Iterator[bytes]:
    """The files of a job as they go into its archive."""
    compressor = zstandard.ZstdCompressor().compressobj()
    with typed("packing the files", job.key):
        for piece in _tarred(folder_of(job, JOB_FILES)):
            if data := compressor.compress(piece):
                yield data
    yield compressor.flush()


def _tarred(folder: str) -> Iterator[bytes]:
    # The repository last: as long as it is missing, what was unpacked is not all there.
    names = set(os.listdir(folder)) - _LEFT_OUT
    pending = sorted(names, key=lambda name: (name == _REPOSITORY, name), reverse=True)
    with tarfile.open(  # direct write: only makes headers, in memory
        fileobj=io.BytesIO(), mode="w", format=tarfile.PAX_FORMAT
    ) as tar:
        while pending:  # in the order of tarfile, which goes no deeper than Python can recurse
            path = os.path.join(folder, name := pending.pop())
            try:
                about = cast("tarfile.TarInfo | None", tar.gettarinfo(path, name))
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                what = f"folders are nested too deep to be packed: {name[:80]}…"
                hint = "remove them from the workspace, and pack the job then"
                raise StorageError(what, hint=hint, path=path[:200]) from error
            if about is None:
                continue  # a socket: no archive can have one
            yield about.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            if about.isreg():
                with open(path, "rb") as file:
                    yield from exactly(file.fileno(), about.size)
                yield bytes(-about.size % tarfile.BLOCKSIZE)
            elif about.isdir():
                pending += [f"{name}/{each}" for each in sorted(os.listdir(path), reverse=True)]
    yield bytes(2 * tarfile.BLOCKSIZE)


def _check(job: Job, packed: Record) -> None:
    """Read the archive to its end before anything is removed."""
    key, digest, cause = f"{job.key}/{FILES}", sha256(), None
    pieces = job.home.blob(key).read()

    def read(_: int) -> bytes:
        digest.update(piece := next(pieces, b""))
        return piece

    try:
        # In bounded pieces: a file of zeros is a thousandth of its size here.
        source = cast("Any", SimpleNamespace(read=read))
        with zstandard.ZstdDecompressor().stream_reader(source) as whole:
            while whole.read(_CHUNK):
                pass
        while read(_CHUNK):
            pass
    except zstandard.ZstdError as error:
        cause = error
    if cause is not None or digest.hexdigest() != packed["sha256"]:
        hint = "look at the disk; nothing was removed"
        raise Corrupt(f"{key} cannot be read back", hint=hint, path=key) from cause


def _record(job: Job, packed: Record) -> None:
    # With so small a limit the line is the first of a new segment.
    log = job.home.log(job.log.key, rotate_at=1)

    def decide(head: Cursor) -> Decision[None]:
        state = job.state()
        check_packable(state)
        line: Record = {"event": "archived", "archived": packed, "fence": job.fence}
        return [line] if state["archived"] is None else [], None

    try:
        log.write(decide)
    finally:
        log.close()


# --- what is left of it ---------------------------------------------------------------------


def has_files(job: Job) -> bool:
    """Whether what the job kept of its files is there."""
    return os.path.isdir(folder_of(job, JOB_FILES, _REPOSITORY))


def check_kept(job: Job) -> None:
    """Refuse to go on with no files where some were kept: what was done would be left out."""
    state = job.state()
    if state["base"] is not None and not state["archived"] and not has_files(job):
        where = folder_of(job, JOB_FILES)
        raise files_gone(job.name, where, over=state["status"] in FINAL)


def check_unpacked(job: Job, verb: str) -> None:
    """Refuse what needs the files of a job that was packed, unless they were unpacked again."""
    if packed_in(job) is not None:
        raise _is_packed(job, verb)


@contextmanager
def needing_files(job: Job, verb: str) -> Generator[None]:
    """Refuse it too if the job is packed in between, whatever was missing then."""
    check_unpacked(job, verb)
    before = job.state()["archived"]
    try:
        check_kept(job)
        yield
    except HoldfastError:
        if job.state()["archived"] != before:
            raise _is_packed(job, verb) from None
        raise


def _is_packed(job: Job, verb: str) -> Refused:
    packed, folder = shlex.quote(folder_of(job, FILES)), shlex.quote(folder_of(job, JOB_FILES))
    return Refused(
        f"{job.name} is packed: {verb} needs its files",
        hint=f"mkdir -p {folder} && tar --zstd -xf {packed} -C {folder}; "
        f"`holdfast job archive {job.name}` takes them away again",
    )


def changes_of(job: Job, *, patch: bool, most: int | None = None) -> str | None:
    """What the job changed, as it was when it was packed; None if only its files can tell.

    Of a patch all of it, or the first `most` bytes.
    """
    packed = _archived(job)
    if ("patch" if patch else "changes") not in packed:
        check_unpacked(job, "diff")
        return None
    if not patch:
        return str(packed["changes"])
    key = f"{job.key}/{PATCH}"
    blob = job.home.blob(key)
    if (size := blob.size()) is None:
        raise NotFound(f"{key} is gone", hint="compare with a backup", path=key)
    wanted = size if most is None else min(most, size)
    if wanted > _MOST_PATCH:
        hint = f"`git apply` takes the file itself: {job.home.path}/{key}"
        raise BadValue(f"the patch has {wanted} bytes", hint=hint, path=key)
    text, pieces = bytearray(), blob.read()
    while len(text) < wanted and (piece := next(pieces, b"")):
        text += piece
    return text[:wanted].decode("utf-8", "surrogateescape")
