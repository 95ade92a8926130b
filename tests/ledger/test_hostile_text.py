"""Text is data: whatever stands in it comes back equal, on one line, and nothing runs."""

from __future__ import annotations

import contextlib
import io
import json
import shlex

import pytest

from holdfast.cli.main import main
from tests.ledger.shell import PROGRAM, Ran, Shell, entries_in, is_entry, lines_in

HOSTILE = {
    "double quotes": 'he said "ok"',
    "single quote": "it's",
    "real newline": "two\nlines",
    "backslash n": r"\n",
    "substitution": "$(touch x)",
    "backticks": "`touch x`",
    "python": '" + __import__("os").system("touch x") + "',
    "line separators": "a\u2028b\u2029c\x85d",
    "emoji": "🦀 👩‍👩‍👧 ﷽ e\u0301",
    "100 kB": "x" * 50_000 + "é" * 25_000,
    "control characters": "\x1b[31mred\x1b[0m \x07 \r\n\t \x7f",
    "bidi": "\u202euser.exe\u202c \U000e0041",
    "looks like an option": "--agent=eve --json",
    "looks like a file": "@/etc/hostname",
    "only a dash": "-",
    "looks like a sealed line": '","seq":9,"hash":"' + "0" * 64 + '"}',
    "shell metacharacters": "; touch x | touch x & touch x > x < x * ? [a] {a,b} ~ !! %s \\",
    "blanks": "  two  \t",
}


def script_of(texts: list[str]) -> str:
    """The calls as somebody would put them into a shell script."""
    words = [PROGRAM, "ledger", "write", "--agent", "cls", "--event", "info", "--"]
    return "\n".join(f"{shlex.join(words)} {shlex.quote(text)} || exit 9" for text in texts)


def came_back(shell: Shell) -> list[str]:
    return [row["summary"] for row in shell("ledger", "list", "--limit", "0", "--json").rows()]


def test_hostile_text_in_a_shell_script_comes_back_equal_and_nothing_runs(shell: Shell) -> None:
    texts = list(HOSTILE.values())
    ran = shell.run(["bash", "-c", script_of(texts)], env={"HOLDFAST_HOME": str(shell.home)})

    assert (ran.code, ran.err) == (0, "")
    assert came_back(shell) == texts
    assert list(shell.cwd.iterdir()) == []


def test_hostile_text_from_a_variable_of_a_loop_comes_back_equal(shell: Shell) -> None:
    names = ("real newline", "substitution", "backticks", "shell metacharacters", "blanks")
    texts = [HOSTILE[name] for name in names]
    # The words are given NUL-separated, as `find -print0 | xargs -0` would.
    each = f'while IFS= read -r -d "" text; do {PROGRAM} ledger write --agent cls --event info'
    ran = shell.run(
        ["bash", "-c", f'{each} -- "$text" || exit 9; done'],
        env={"HOLDFAST_HOME": str(shell.home)},
        said="".join(f"{text}\0" for text in texts).encode(),
    )
    assert (ran.code, ran.err) == (0, "")
    assert [each["summary"] for each in entries_in(shell.home, "cls")] == texts
    assert list(shell.cwd.iterdir()) == []


def test_each_hostile_text_is_one_line_that_any_parser_reads(shell: Shell) -> None:
    for text in HOSTILE.values():
        words = ["ledger", "write", "--agent", "cls", "--event", "info", "--", text]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["--home", str(shell.home), *words]) == 0

    lines = lines_in(shell.home, "cls")
    assert len(lines) == len(HOSTILE)
    records = [json.loads(line) for line in lines]
    assert [record["summary"] for record in records] == list(HOSTILE.values())
    assert all(map(is_entry, records))
    assert [record["seq"] for record in records] == list(range(1, len(HOSTILE) + 1))
    assert shell("ledger", "verify").code == 0


def test_a_terminal_sees_one_harmless_line_for_each_hostile_text(shell: Shell) -> None:
    texts = ["two\nlines", HOSTILE["control characters"], HOSTILE["bidi"], "a\u2028b\x9b31m"]
    for text in texts:
        shell.write(text)
    shown = shell("ledger", "list").out
    assert len(shown.splitlines()) == 1 + len(texts)
    assert not set(shown) & set("\x1b\x07\x7f\x9b\r\t\u202e\u2028\U000e0041")


@pytest.mark.parametrize("field", ["task", "source"])
def test_the_other_free_texts_are_as_safe(shell: Shell, field: str) -> None:
    text = f"{HOSTILE['double quotes']}{HOSTILE['substitution']}\n`touch x`\u2028"
    assert shell.write("x", f"--{field}", text).code == 0
    [record] = entries_in(shell.home, "cls")
    assert record[{"task": "task_id", "source": "source"}[field]] == text
    assert list(shell.cwd.iterdir()) == []


def test_text_that_is_not_utf_8_is_refused_and_says_which_word(shell: Shell) -> None:
    ran: Ran = shell("ledger", "write", "--agent", "cls", "--event", "info", b"caf\xe9")
    assert ran.code == 2
    assert "not UTF-8" in ran.err
    assert "caf" in ran.err
    assert not shell.home.exists()


def test_a_line_of_more_than_8_mib_is_refused_with_its_size_and_a_way_out(shell: Shell) -> None:
    data = json.dumps({"text": "x" * (8 << 20)}).encode()
    ran = shell(
        "ledger", "write", "--agent", "cls", "--event", "info", "--data", "-", "x", said=data
    )
    assert ran.code == 2
    assert "too large" in ran.err
    assert "hint: store the text as a file" in ran.err
    assert shell.write("still works").code == 0
