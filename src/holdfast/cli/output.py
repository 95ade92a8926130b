"""Where results and talk go: data to standard output, everything else to standard error.

Knows the streams, `--json`, colour and what happens when a stream goes away; does not know
verbs.  The first write that fails is remembered and ends all output, so that a verb is never
interrupted halfway by its reader.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO, cast

from holdfast.cli.safe import safe, safe_json
from holdfast.errors import HoldfastError, UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Result, Rows, Show, Stream, error_envelope

if TYPE_CHECKING:
    from holdfast.cli.live import LiveLine

BOLD, RED, YELLOW, CYAN = "1", "1;31", "33", "36"


class Output:
    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._lost: OSError | None = None
        self._live: LiveLine | None = None
        for stream in (sys.stdout, sys.stderr):
            # Whatever the locale says: our data is UTF-8.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
        at_terminal = self._at_terminal = _is_terminal(sys.stdout)
        self._columns = _terminal_columns() if at_terminal else None
        self._colour = (
            at_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    def lend(self, context: Context) -> None:
        """Give a verb what this terminal can do: each only where somebody sees or types."""
        talks = _is_terminal(sys.stderr)
        context.watcher = _show_progress if talks else None
        context.tell = None if self.json else self._tell
        if talks and not self.json and os.environ.get("TERM") != "dumb":
            context.live = self._lively
        if not self.json and _is_terminal(sys.stdin) and _is_terminal(sys.stdout):
            context.listen, context.recall, context.edit = _typed, _recalled, _edited

    @contextlib.contextmanager
    def _lively(self, says: Callable[[], str]) -> Generator[None]:
        from holdfast.cli.live import LiveLine

        with LiveLine(sys.stderr, says, lambda text: self._paint(text, CYAN)) as self._live:
            try:
                yield
            finally:
                self._live = None

    def _tell(self, text: str) -> None:
        with contextlib.nullcontext() if self._live is None else self._live.aside():
            self._deliver(safe(text, lines=True), flush=True)

    # --- data ---------------------------------------------------------------------------

    def result(self, result: Result, as_of: str, columns: Sequence[str], context: Context) -> None:
        """Show what a verb gave back; a stream may still warn while it flows."""
        if isinstance(result, Stream):
            self._stream(result, columns, context)
        elif self.json:
            self.text(json_line(result.as_dict(as_of)))
        else:
            self._plain(result, columns)

    def text(self, text: str) -> None:
        """Write data as it is, on lines of its own."""
        self._deliver(text if text.endswith("\n") else text + "\n")

    def finish(self, code: int) -> int:
        """Get everything out; the exit code is `code` unless the data could not be delivered.

        A reader that went away (`| head`) is no failure.
        """
        self._flush()
        if self._lost is None:
            return code
        # Python would try to flush once more at exit, and complain.
        with contextlib.suppress(OSError):
            sys.stdout.close()
        if self._lost.errno == errno.EPIPE:
            return code
        self.error(
            HoldfastError(
                f"the output could not be written: {self._lost.strerror}",
                hint="what the verb did is done; look before you repeat a change",
            )
        )
        return code or HoldfastError.exit_code

    def _plain(self, result: Rows | Show | Change, columns: Sequence[str]) -> None:
        match result:
            case Rows():
                self._rows(result, columns)
            case Show(text=""):
                pass
            case Show() if result.text is not None:
                # Escaped, a patch no longer applies; only a terminal could be harmed by it.
                exact = result.exact and not self._at_terminal
                self.text(result.text if exact else safe(result.text, lines=True))
            case Show():
                from holdfast.cli.render import outline

                self.text("\n".join(outline(result.data)))
            case Change():
                prefix = "dry run: " if result.dry_run else ""
                self.text(prefix + safe(result.detail, lines=True))

    def _rows(self, result: Rows, columns: Sequence[str]) -> None:
        from holdfast.cli.render import table

        if result.plain is not None:
            for line in result.plain:
                self.text(safe(line))
            self._footer(result)
            return
        header, *lines = table(result.rows, columns, self._columns) or [""]
        if header:
            self.text("\n".join([self._header(header), *map(self._clip, lines)]))
        self._footer(result)

    def _footer(self, result: Rows) -> None:
        told = {key: value for key, value in result.counts.items() if value is not None}
        said = [f"{safe(key)} {safe(str(value))}" for key, value in told.items()]
        if said or not result.rows:
            self.talk(", ".join(said) or "nothing to show")
        if result.truncated:
            where = f", it goes on at {safe(result.next)}" if result.next else ""
            self.talk(f"there is more{where}")

    def _stream(self, stream: Stream, columns: Sequence[str], context: Context) -> None:
        lines = map(json_line, stream.rows) if self.json else self._grid_lines(stream, columns)
        try:
            for line in lines:
                self.text(line)
                self._flush()
                self.warnings(context)
                if self._lost:
                    return
        finally:
            # What the rows come from lets go before the home is closed.
            if isinstance(rows := stream.rows, Generator):
                cast("Generator[object]", rows).close()
            self.warnings(context)

    def _grid_lines(self, stream: Stream, columns: Sequence[str]) -> Iterator[str]:
        from holdfast.cli.render import Grid

        grid: Grid | None = None
        for row in stream.rows:
            if grid is None:
                grid = Grid(columns or list(row))
                grid.fit([row])
                yield self._header(grid.header())
            yield self._clip(grid.line(row))

    def _flush(self) -> None:
        self._deliver("", flush=True)

    def _deliver(self, text: str, *, flush: bool = False) -> None:
        if sys.stdout is None or self._lost:
            return
        try:
            sys.stdout.write(text)
            if flush:
                sys.stdout.flush()
        except OSError as error:
            self._lost = error

    # --- talk ---------------------------------------------------------------------------

    def warnings(self, context: Context) -> None:
        for text in context.take_warnings():
            if self.json:
                self.talk(json_line({"warning": text}))
            else:
                self.talk(f"{self._paint('warning:', YELLOW)} {safe(text)}")

    def error(self, error: HoldfastError) -> None:
        """What went wrong; what to do about it stands last, where the eye lands."""
        self._flush()
        if self.json:
            self.talk(json_line(error_envelope(error)))
            return
        self.talk(f"{self._paint('error:', RED)} {safe(error.message)}")
        if error.path is not None and error.path not in error.message:
            self.talk(f"path: {safe(error.path)}")
        if error.hint is not None:
            self.talk(f"{self._paint('hint:', CYAN)} {safe(error.hint)}")

    def traceback(self, error: BaseException) -> None:
        import traceback

        self.talk(safe("".join(traceback.format_exception(error)), lines=True).rstrip("\n"))

    def talk(self, line: str) -> None:
        if sys.stderr is None:
            return
        # Nobody is left to be told that standard error is gone.
        with contextlib.suppress(OSError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    # --- looks --------------------------------------------------------------------------

    def _header(self, text: str) -> str:
        clipped = self._clip(text)
        return f"\x1b[{BOLD}m{clipped}\x1b[0m" if self._colour else clipped

    def _paint(self, text: str, code: str) -> str:
        coloured = self._colour and _is_terminal(sys.stderr)
        return f"\x1b[{code}m{text}\x1b[0m" if coloured else text

    def _clip(self, text: str) -> str:
        if self._columns is None:
            return text
        from holdfast.cli.render import clip

        return clip(text, self._columns)


def json_line(value: Mapping[str, Any]) -> str:
    """`value` as one line of JSON that is safe to show, too."""
    # A verb that speaks to people does not pay for this.
    import orjson

    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        # A file name that is no UTF-8: JSON can still say it, orjson does not.
        import json

        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return safe_json(text)


def _show_progress(what: str, done: int, total: int) -> None:
    """On one line, which is gone when the work is done."""
    line = f"{safe(what)}: {100 * done // max(1, total)} %" if done < total else ""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _terminal_columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _recalled(lines: Sequence[str]) -> None:
    with contextlib.suppress(ImportError):  # some Pythons are built without it
        import readline

        for line in lines:
            if "\n" not in line:
                readline.add_history(safe(line))


def _edited(text: str) -> str | None:
    import click

    try:
        return click.edit(text, extension=".json")
    except click.ClickException as error:
        raise UsageError(
            error.message, hint="EDITOR names a program that can; nothing was changed"
        ) from None


def _typed(prompt: str) -> str | None:
    with contextlib.suppress(ImportError):
        import_module("readline")  # from now on `input` edits lines and keeps them
    try:
        return input(prompt)
    except EOFError:
        return None
