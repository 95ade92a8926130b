"""`holdfast`: one command line in, one exit code out.

Imports stand where they are needed: a verb pays only for itself, and Ctrl-C ends us the same
way however early it comes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.cli.commands import Request
    from holdfast.cli.output import Output
    from holdfast.ops.operation import Table


def main(argv: Sequence[str] | None = None, table: Table | None = None) -> int:
    """Run one command line and give its exit code; every failure is told, none escapes."""
    _hold_standard_descriptors()
    if argv is None:
        # Imports leave no garbage, and looking for it is a twentieth of a hot verb.
        gc.disable()
        _let_signals_end_us_at_once()
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        from holdfast.cli.arguments import wants_json
        from holdfast.cli.output import Output

        output = Output(json=wants_json(words))
    except KeyboardInterrupt:
        return 130
    try:
        code = _run(words, table, output)
    except SystemExit:
        raise
    except BaseException as error:
        code = _failed(error, output)
        if isinstance(error, Exception) and _spares_caller(words, table):
            code = 0
    return output.finish(code)


def _spares_caller(words: list[str], table: Table | None) -> bool:
    """Whether the words, however wrong, mean a verb that must not fail its caller."""
    table = table or _all_verbs()
    spared = [each.name.split() for each in table.operations if each.spares_caller]
    return "--strict" not in words and any(set(each) <= set(words) for each in spared)


def _all_verbs() -> Table:
    from holdfast.ops.table import TABLE

    return TABLE


def _run(words: list[str], table: Table | None, output: Output) -> int:
    from holdfast.cli.arguments import decoded
    from holdfast.cli.commands import COMPLETE_VARIABLE, complete, parse

    table = table or _all_verbs()
    if question := os.environ.get(COMPLETE_VARIABLE):
        return complete(table, question)
    asked = parse(decoded(words), table)
    if isinstance(asked, str):
        output.text(asked)
        return 0
    output.json = asked.json
    return _perform(asked, output)


def _perform(request: Request, output: Output) -> int:
    from holdfast.clock import utc_stamp
    from holdfast.errors import from_os
    from holdfast.ops.context import Context

    operation = request.operation
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
        _let_signals_interrupt_us()
    try:
        with Context(request.home, layout=request.layout) as context:
            output.lend(context)
            # Before the verb looks: what it shows is at least as new as this.
            as_of = utc_stamp(context.clock.now())
            try:
                result = operation.call(context, request.arguments)
            finally:
                output.warnings(context)
            output.result(result, as_of, operation.columns, context)
            return result.exit_code
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else None
        raise from_os(error, operation.name, path) from error


def _failed(error: BaseException, output: Output) -> int:
    from holdfast.cli.failure import failure, wants_traceback
    from holdfast.cli.usage import NoVerb

    shown = failure(error)
    if wants_traceback():
        output.traceback(error)
    if isinstance(error, NoVerb) and not output.json:
        output.talk(error.help)  # nobody asked for it: the call was incomplete
    else:
        output.error(shown)
    return shown.exit_code


def _let_signals_end_us_at_once() -> None:
    """Until there is something to put in order; some modules in C do not survive an exception."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
        sys.unraisablehook = _told_in_vain


def _end_at_once(number: int, frame: object) -> None:
    os._exit(130)


def _told_in_vain(what: sys.UnraisableHookArgs) -> None:
    """Python drops an exception that comes up in a callback; an interrupt must not get lost."""
    if issubclass(what.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(what)


def _let_signals_interrupt_us() -> None:
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _hold_standard_descriptors() -> None:
    """Fill closed standard descriptors, lest a file of the store become `stderr`."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            opened = os.open(os.devnull, os.O_RDWR)  # noqa: TID251 - no file of a home
            os.set_inheritable(opened, True)
