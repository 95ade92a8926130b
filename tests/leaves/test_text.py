"""Amounts are read by one grammar, wherever people write them."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.testing import refused
from holdfast.text import ago, clip, duration, one_line, plural, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("1.5h", 5400), ("2 d", 172800), (" 10m ", 600), ("1w", 604800),
        ("0.000001s", 0.000001),
    ],
)  # fmt: skip
def test_a_length_of_time_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "0", "0.0h", "-5", "5y", "5M", "1e3s", "1:30", "1h30m", "1,5h", "٣s", "nan"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with refused(UsageError, "not a length of time"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096), ("300B", 300), ("200MB", 200_000_000), ("1.5 GiB", 3 << 29),
        ("2TB", 2 * 10**12), ("64 KiB", 65_536),
    ],
)  # fmt: skip
def test_a_size_has_a_unit_or_is_in_bytes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "MB", "0", "-1", "1e3", "5 mb", "5PB", "much", "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with refused(UsageError, "not a size"):
        size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119.4, "119s"), (120, "2m"), (7200, "2h"), (172799, "48h"), (172800, "2d"),
     (-7200, "-2h"), (94_694_400, "1096d")],
)  # fmt: skip
def test_how_long_ago_is_told_in_one_unit(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_what_is_shown_in_a_line_is_counted_and_cut() -> None:
    assert [plural(n, "file") for n in (0, 1, 1200)] == ["0 files", "1 file", "1,200 files"]
    assert one_line(" a\n b\t c ") == "a b c"
    assert (clip("abcd", 4), clip("abcde", 4)) == ("abcd", "abc…")
