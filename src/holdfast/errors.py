"""Everything that can go wrong, drawn as a tree.

    HoldfastError
    ├── UsageError          usage            2   the call is wrong; nothing was touched
    │   ├── BadName         bad_name         2   a name or key that may not become a file
    │   └── BadValue        bad_value        2   a value the strict codec refuses to write
    ├── ConfigError         config           3   settings, home or environment
    │   ├── NotOurs         not_ours         3   the home or a file in it is not a safe one to use
    │   ├── NewerFormat     newer_format     3   written by a newer Holdfast
    │   └── NoKey           no_key           3   a text is sealed, and its key is not available
    ├── NotFound            not_found        4
    ├── Busy                busy             5   a living process holds it; try again
    ├── Corrupt             corrupt          6   bytes on disk are not what was written
    ├── Conflict            conflict         1   it changed since you read it
    ├── LeaseLost           lease_lost       1   another process owns it now
    ├── OverBudget          over_budget      1   it would spend more than it may
    ├── Forbidden           forbidden        1   a program may not make a person's decision
    ├── Retired             retired          1   an agent that takes no more sessions
    ├── ModelError          model            1   a model gave no reply that can be used
    │   ├── Unavailable     unavailable      1   overloaded, limited or out of reach; try again
    │   ├── TimedOut        timed_out        1   no whole reply in the time it had
    │   ├── NotAuthorised   not_authorised   1   no key, or one that may not do this
    │   ├── Declined        declined         1   the model or its provider refuses to answer
    │   ├── TooLong         too_long         1   the request does not fit the model
    │   └── InvalidOutput   invalid_output   1   a reply, but not the one that was asked for
    └── StorageError        storage          1   the disk refused; *not committed*
        ├── DiskFull        disk_full        1
        ├── ReadOnly        read_only        1
        └── Indeterminate   indeterminate    1   it may or may not be on disk

Every error says what to do next (`hint`) and whether the same call may work later
(`retryable`).  A control signal is not an error: `Signal` stands outside the tree, so
that `except HoldfastError` cannot swallow it.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar


class HoldfastError(Exception):
    """Base of every failure that a caller is expected to handle."""

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path

    def as_dict(self) -> dict[str, object]:
        """The error object of the envelope that every face shows."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
            "path": self.path,
        }


class UsageError(HoldfastError):
    code, exit_code = "usage", 2


class BadName(UsageError):
    code = "bad_name"


class BadValue(UsageError):
    code = "bad_value"


class ConfigError(HoldfastError):
    code, exit_code = "config", 3


class NotOurs(ConfigError):
    code = "not_ours"


class NewerFormat(ConfigError):
    code = "newer_format"


class NoKey(ConfigError):
    code = "no_key"


class NotFound(HoldfastError):
    code, exit_code = "not_found", 4


class Busy(HoldfastError):
    code, exit_code, retryable = "busy", 5, True


class Corrupt(HoldfastError):
    code, exit_code = "corrupt", 6


class Conflict(HoldfastError):
    code, retryable = "conflict", True


class LeaseLost(HoldfastError):
    code = "lease_lost"


class OverBudget(HoldfastError):
    code = "over_budget"


class Forbidden(HoldfastError):
    code = "forbidden"


class Retired(HoldfastError):
    code = "retired"


class ModelError(HoldfastError):
    code = "model"
    reply: object = None
    """What came and was paid for, although it cannot be used."""
    tries: tuple[object, ...] = ()
    """The calls that had failed when this one ended the asking."""
    free: bool = False
    """Whether it is known that nothing was paid for: it failed before the first token."""


class Unavailable(ModelError):
    code, retryable = "unavailable", True
    after: float | None = None
    """Seconds that the provider asks to wait."""


class TimedOut(ModelError):
    code = "timed_out"


class NotAuthorised(ModelError):
    code = "not_authorised"


class Declined(ModelError):
    code = "declined"


class TooLong(ModelError):
    code = "too_long"


class InvalidOutput(ModelError):
    code = "invalid_output"


class StorageError(HoldfastError):
    code = "storage"


class DiskFull(StorageError):
    code, retryable = "disk_full", True


class ReadOnly(StorageError):
    code = "read_only"


class Indeterminate(StorageError):
    code = "indeterminate"


class Signal(BaseException):
    """Control flow, not failure: stop, pause, limit reached."""


class Interrupted(Signal):
    """The user or the supervisor asked us to stop; exit code 130."""


@contextmanager
def typed(doing: str, path: str | None = None) -> Generator[None]:
    """Turn what the operating system says in the block into an error of the tree."""
    try:
        yield
    except OSError as error:
        raise from_os(error, doing, path) from error


@contextmanager
def recorded(what: str, then: str = "the next call that has room does the rest") -> Generator[None]:
    """What follows once something is recorded: its failure must not make anybody repeat that."""
    try:
        yield
    except HoldfastError as error:
        said = f"{what} is recorded, but not everywhere: {error.message}"
        raise Indeterminate(said, hint=f"do not repeat it: {then}", path=error.path) from error


def from_os(error: OSError, doing: str, path: str | None = None) -> HoldfastError:
    """The typed error for what the operating system said while we were `doing` something."""
    said = f"{doing}: {error.strerror or error}"
    kind: type[HoldfastError]
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            kind = DiskFull
            hint = "free some space; nothing was lost, the same call works afterwards"
        case errno.EROFS:
            kind, hint = ReadOnly, "remount the file system read-write"
        case errno.EACCES | errno.EPERM:
            kind, hint = NotOurs, "check owner and mode of the home directory"
        case errno.ELOOP:
            kind, hint = NotOurs, "a symbolic link stands where a file of ours belongs; remove it"
        case errno.EMFILE | errno.ENFILE:
            kind, hint = Busy, "too many open files; raise `ulimit -n`"
        case errno.ENOENT:
            kind, hint = NotFound, "it was removed; try again"
        case _:
            kind, hint = StorageError, "run `holdfast doctor`"
    return kind(said, hint=hint, path=path)
