"""What is kept of an output: both ends, and the amount between them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.proc.output import Keep, LastLine, Output, Window

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
