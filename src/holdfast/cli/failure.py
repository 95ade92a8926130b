"""Every way in which a run can end badly, as an error that can be shown."""

from __future__ import annotations

import os
from typing import ClassVar

from holdfast.errors import HoldfastError, Interrupted


class Bug(HoldfastError):
    """What no verb was meant to raise."""

    code: ClassVar[str] = "bug"


class Stopped(HoldfastError):
    """Somebody pressed Ctrl-C or asked us to stop."""

    code: ClassVar[str] = "interrupted"
    exit_code: ClassVar[int] = 130


def failure(error: BaseException) -> HoldfastError:
    """The error to show for `error`."""
    match error:
        case HoldfastError():
            return error
        case KeyboardInterrupt() | Interrupted():
            return Stopped("interrupted")
        case _:
            said = " ".join(str(error).split())
            return Bug(
                f"{type(error).__name__}: {said}" if said else type(error).__name__,
                hint="this is a bug in holdfast; HOLDFAST_DEBUG=1 shows where",
            )


def wants_traceback() -> bool:
    return os.environ.get("HOLDFAST_DEBUG", "") not in ("", "0")
