"""The tree of errors is as its module draws it, and every error says what to do next."""

from __future__ import annotations

import ast
import errno
import os
import re
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError, Interrupted, Signal, from_os, typed

SOURCE = Path(errors.__file__).parent
ROW = re.compile(
    r"(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: +(?P<code>[a-z_]+) +(?P<exit>\d))?(?: .*)?"
)


def drawn() -> dict[str, tuple[str | None, str | None, int | None]]:
    """Parent, code and exit code of every class in the drawing."""
    found: dict[str, tuple[str | None, str | None, int | None]] = {}
    above: list[str] = []
    drawing = (errors.__doc__ or "").split("\n\n")[1]
    for line in drawing.splitlines():
        row = ROW.fullmatch(line.removeprefix("    "))
        assert row, line
        depth = len(row["indent"]) // 4
        above[depth:] = [row["name"]]
        number = int(row["exit"]) if row["exit"] else None
        found[row["name"]] = (above[depth - 1] if depth else None, row["code"], number)
    return found


def classes() -> dict[str, type[HoldfastError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, HoldfastError)
    }


def test_the_drawing_names_every_error_and_no_other() -> None:
    assert list(drawn()) == list(classes())
    assert len(drawn()) > 15


@pytest.mark.parametrize("name", [name for name in drawn() if name != "HoldfastError"])
def test_an_error_is_what_the_drawing_says(name: str) -> None:
    parent, code, exit_code = drawn()[name]
    kind = classes()[name]
    assert kind.__bases__ == (classes()[parent or ""],)
    assert (kind.code, kind.exit_code) == (code, exit_code)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in classes().values()]
    assert len(set(codes)) == len(codes)


def test_only_what_can_pass_by_itself_is_retryable() -> None:
    assert {name for name, kind in classes().items() if kind.retryable} == {
        "Busy",
        "Conflict",
        "DiskFull",
        "Unavailable",
    }


def test_a_signal_cannot_be_swallowed_as_an_error() -> None:
    assert not issubclass(Signal, Exception)
    assert issubclass(Interrupted, Signal)


def test_an_error_shows_all_it_knows() -> None:
    error = errors.Busy("held by rio", hint="wait", path="state/rio")
    assert str(error) == "held by rio"
    assert error.as_dict() == {
        "code": "busy",
        "message": "held by rio",
        "hint": "wait",
        "retryable": True,
        "path": "state/rio",
    }


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, errors.DiskFull),
        (errno.EDQUOT, errors.DiskFull),
        (errno.EFBIG, errors.DiskFull),
        (errno.EROFS, errors.ReadOnly),
        (errno.EACCES, errors.NotOurs),
        (errno.EPERM, errors.NotOurs),
        (errno.ELOOP, errors.NotOurs),
        (errno.EMFILE, errors.Busy),
        (errno.ENFILE, errors.Busy),
        (errno.ENOENT, errors.NotFound),
        (errno.EIO, errors.StorageError),
        (errno.EXDEV, errors.StorageError),
    ],
)
def test_what_the_system_says_becomes_a_typed_error_with_a_hint(
    number: int, kind: type[HoldfastError]
) -> None:
    said = OSError(number, os.strerror(number))
    with pytest.raises(kind) as caught, typed("writing", "a/b"):
        raise said
    assert type(caught.value) is kind
    assert caught.value.message == f"writing: {os.strerror(number)}"
    assert caught.value.hint
    assert caught.value.path == "a/b"
    assert caught.value.__cause__ is said


def test_a_system_error_without_words_is_told_as_it_is() -> None:
    assert from_os(OSError("odd"), "reading").message == "reading: odd"


def test_typed_lets_everything_else_through() -> None:
    with pytest.raises(ZeroDivisionError), typed("writing"):
        raise ZeroDivisionError
    with typed("writing"):
        done = True
    assert done


def raised_without_hint() -> list[str]:
    files = [*SOURCE.glob("*.py"), *(SOURCE / "store").glob("*.py")]
    found: list[str] = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            hinted = any(keyword.arg == "hint" for keyword in node.keywords)
            if node.func.id in classes() and not hinted:
                found.append(f"{file.relative_to(SOURCE)}:{node.lineno}")
    return found


def test_no_error_of_the_store_is_made_without_a_hint() -> None:
    assert raised_without_hint() == []
