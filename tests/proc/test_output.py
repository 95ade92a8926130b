"""What is kept of an output: both ends, and the amount between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.mask import hiding
from holdfast.proc.output import LONGEST_LINE, Keep, LastLine, Output, Window

CHUNKS = st.lists(st.binary(max_size=40), max_size=30)
TEXT = st.lists(st.text("ab \t\r\né").map(str.encode), max_size=30)


@given(CHUNKS, st.integers(0, 50), st.integers(0, 50))
def test_head_and_tail_are_kept_and_the_rest_is_counted(
    chunks: list[bytes], head: int, tail: int
) -> None:
    window, whole = Window(Keep(head, tail)), b"".join(chunks)
    for chunk in chunks:
        window.add(chunk)
    kept = window.captured()
    assert kept.head == whole[:head]
    assert kept.tail == whole[max(head, len(whole) - tail) :]
    assert kept.dropped == max(0, len(whole) - head - tail)
    assert kept.total == len(whole)


@given(CHUNKS)
def test_a_window_never_holds_much_more_than_it_keeps(chunks: list[bytes]) -> None:
    window = Window(Keep(5, 10))
    for chunk in chunks:
        window.add(chunk)
        assert len(window._tail) <= 20


@given(TEXT)
def test_the_last_line_is_the_last_that_is_not_blank(chunks: list[bytes]) -> None:
    line = LastLine()
    for chunk in chunks:
        line.add(chunk)
    lines = [text.strip() for text in b"".join(chunks).splitlines() if text.strip()]
    assert line.text() == (lines[-1].decode("utf-8", "replace") if lines else "")


@given(
    st.lists(st.tuples(st.sampled_from(["out", "err"]), st.binary(max_size=20))), st.integers(0, 60)
)
def test_nothing_beyond_the_limit_gets_through(chunks: list[tuple], limit: int) -> None:
    output = Output(Keep(), limit)
    through = b"".join(output.add(stream, data) for stream, data in chunks)
    whole = b"".join(data for _, data in chunks)
    assert through == whole[:limit]
    assert output.total == len(whole)
    assert output.over == (len(whole) > limit)
    assert output.captured("out").total + output.captured("err").total == len(through)


def test_a_gap_is_shown_to_people() -> None:
    window = Window(Keep(2, 2))
    window.add(b"abcdef")
    assert window.captured().text == "ab\n[2 bytes left out]\nef"


SECRET = "ghp_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQq7r"
KEPT = 20 << 10


def leaks(text: str) -> bool:
    """Whether eight characters of the secret are left."""
    return any(SECRET[at : at + 8] in text for at in range(len(SECRET) - 7))


@pytest.mark.parametrize("between", ["a\n", "a ", "é\n"])
@pytest.mark.parametrize("cut", range(0, 60, 8))
@pytest.mark.parametrize("at", ["head", "tail"])
def test_nothing_of_a_secret_on_a_cut_is_left(between: str, cut: int, at: str) -> None:
    label = f"API_KEY={SECRET}"
    before = (KEPT - cut) if at == "head" else 3 * KEPT
    fill = between.encode() * KEPT * 3
    data = fill[:before] + label.encode()
    data += fill[: 3 * KEPT if at == "head" else KEPT - len(label) + cut]
    window = Window(Keep(KEPT, KEPT))
    window.add(data)
    text = window.captured().cleaned(lambda text: hiding()({"text": text})["text"])
    assert not leaks(text)
    assert text.count("a" if "a" in between else "é") > 1_000


@pytest.mark.parametrize("cut", range(0, 45, 6))
def test_nothing_of_a_secret_is_left_in_a_line_without_its_beginning(cut: int) -> None:
    line = LastLine()
    line.add(b"a " * LONGEST_LINE + SECRET.encode() + b" b" * ((LONGEST_LINE - cut) // 2))
    assert not leaks(line.text())
    assert line.text().startswith("…")


def test_what_was_not_cut_is_cleaned_as_a_whole() -> None:
    window = Window(Keep(KEPT, KEPT))
    window.add(f"a\n{SECRET}\nb\n".encode())
    assert window.captured().cleaned(lambda text: text.replace(SECRET, "*")) == "a\n*\nb\n"
