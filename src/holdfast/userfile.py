"""Files of the user's own, outside any home: read with a limit, put or replaced whole."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

from holdfast.errors import NotFound, UsageError, typed

MOST_BYTES = 64 << 20
WAIT_MS = 10_000
"""How long a pipe may have no process that writes to it.  A process that has opened it is waited
for however long it takes: it may be a model."""
_AT_ONCE = 1 << 16
_CONVERT = "convert it first, for example with `iconv -f latin1 -t utf-8`"
_MEND = {
    errno.ENOENT: "name a file that exists, from the working directory or the root on",
    errno.EISDIR: "name a file in this folder",
    errno.EACCES: "`chmod u+r` makes it readable",
}


def read(path: str, most: int = MOST_BYTES, *, plain: bool = False) -> bytes:
    """What a file or pipe holds, `-` being standard input; only a regular file if `plain`.

    OSError if it cannot be opened; UsageError if it is too large, or a pipe without a writer.
    """
    if path == "-":
        data = sys.stdin.buffer.read(most + 1) if sys.stdin is not None else b""
    else:
        with open(path, "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if plain and not stat.S_ISREG(mode):
                raise OSError(0, "not a regular file", path)
            if stat.S_ISFIFO(mode):
                data = _piped(file.fileno(), path, most)
            else:
                os.set_blocking(file.fileno(), True)
                data = file.read(most + 1)
    if len(data) > most:
        raise UsageError(
            f"{'standard input' if path == '-' else path} is larger than {most >> 20} MiB",
            hint="name a smaller file, or store its path instead of its content",
        )
    return data


def text(path: str, what: str, most: int = MOST_BYTES, *, hint: str = "") -> str:
    """The text in a file that the user named for `what`; UsageError says why there is none.

    `hint` says what else could be given.
    """
    named = "standard input" if path == "-" else path
    try:
        return read(path, most).decode("utf-8-sig")
    except OSError as error:
        wrong, mend = f"cannot read {named}: {error.strerror}", _MEND.get(error.errno or 0, "")
    except UnicodeDecodeError as error:
        wrong, mend = f"{named} is not UTF-8 at byte {error.start}", _CONVERT
    hint = "; ".join(filter(None, (mend, hint)))
    raise UsageError(f"{what}: {wrong}", hint=hint or "name another file", path=path)


def texts_below(root: str, most: int, skipped: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The file, or all in the folder but hidden ones and links, each with its text.

    Those that were not read are put into `skipped`, with the reason.
    """
    for path in _files_below(root, skipped):
        try:
            path.encode()
            yield path, read(path, most, plain=True).decode()
            continue
        except OSError as error:
            why = str(error.strerror)
        except UnicodeEncodeError:
            why = "its name is not UTF-8"
        except UnicodeDecodeError:
            why = "not UTF-8 text"
        except UsageError as error:
            why = error.message
        skipped[path.encode(errors="backslashreplace").decode()] = why


def _files_below(root: str, skipped: dict[str, str]) -> Iterator[str]:
    def unread(error: OSError) -> None:
        skipped[str(error.filename)] = str(error.strerror)

    if not os.path.isdir(root):
        yield from [root] if os.path.exists(root) else []
        return
    for folder, below, names in os.walk(root, onerror=unread):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            path = f"{folder}/{name}"
            if not name.startswith(".") and not os.path.islink(path):
                yield path


def existing(path: str) -> bytes | None:
    """What the file at `path` holds that is to be put or replaced; None if there is none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    with typed(f"reading {path}", path):
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise UsageError(
                    f"{path} is not a regular file", hint="name another file", path=path
                )
            with open(path, "rb", opener=lambda name, _: _without_waiting(name, flags)) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


def put_new(path: str, data: bytes, *, mode: int = 0o666, dry_run: bool = False) -> bool:
    """Whether the file was made now; False if it already holds just that."""
    old = existing(path)
    if old is None and not dry_run:
        with _staged(path, data, mode) as temporary:
            try:
                os.link(temporary, path)  # noqa: TID251 - direct write: the user's
            except FileExistsError:
                old = existing(path)
    if old not in (None, data):
        raise UsageError(
            f"{path} already exists and holds something else",
            hint="nothing is overwritten: name another file with --out, or move it away",
            path=path,
        )
    return old is None


def put_over(path: str, data: bytes, *, mode: int = 0o666) -> bool:
    """Whether the file was made or replaced now; False if it already holds just that."""
    if existing(path) == data:
        return False
    with _staged(path, data, mode) as temporary:
        os.replace(temporary, path)  # noqa: TID251 - direct write: the user's
    return True


@contextmanager
def _staged(path: str, data: bytes, mode: int) -> Generator[str]:
    """The data in a finished file of the same folder, to be linked or moved into place."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = f"{folder}/.{name}.{os.urandom(4).hex()}.tmp"
    flags = os.O_RDONLY | os.O_DIRECTORY
    with typed(f"writing {path}", path):
        try:
            above = os.open(folder, flags)  # noqa: TID251 - to sync it
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                f"no such folder: {folder}", hint="make it first, or name another one", path=path
            ) from None
        try:
            with open(  # direct write: the user's
                temporary,
                "xb",
                opener=lambda name, flags: os.open(name, flags, mode),  # noqa: TID251
            ) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # noqa: TID251 - the same
            yield temporary
            os.fsync(above)  # noqa: TID251 - the same
        finally:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: TID251 - the same
            os.close(above)


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe otherwise waits until a process writes to it, which may be never."""
    return os.open(path, flags | os.O_NONBLOCK)  # noqa: TID251 - only read


def _piped(descriptor: int, path: str, most: int) -> bytes:
    """What is written to a pipe until all writers have ended; UsageError if there is none."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    data = bytearray()
    opened = waited = False
    while len(data) <= most:
        try:
            part = os.read(descriptor, _AT_ONCE)
        except BlockingIOError:  # a process has opened it, and not written yet
            opened = True
            poll.poll()
            continue
        data += part
        opened = opened or bool(part)
        if part:
            continue
        if opened:
            break
        if waited:
            raise UsageError(
                f"nothing wrote to the pipe {path} for {WAIT_MS / 1000:g} s",
                hint="begin what writes to it first, or name a file",
            )
        opened, waited = bool(poll.poll(WAIT_MS)), True
    return bytes(data)
