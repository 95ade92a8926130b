"""Every form of time that was met in the wild."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.formats import read_moment, written

INSTANT = 1763215995.0  # 2025-11-15T14:13:15Z


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        ("2025-11-15T21:13:15+07:00", "offset", "2025-11-15T21:13:15+07:00"),
        ("2025-11-15T21:13:15+0700", "compact_offset", "2025-11-15T21:13:15+07:00"),
        ("2025-11-15T21:13:15+07", "compact_offset", "2025-11-15T21:13:15+07:00"),
        ("2025-11-15T14:13:15Z", "utc", "2025-11-15T14:13:15Z"),
        ("2025-11-15t14:13:15z", "utc", "2025-11-15T14:13:15Z"),
        ("2025-11-15T14:13:15.000000+00:00", "offset", "2025-11-15T14:13:15.000000Z"),
        ("2025-11-15 14:13:15", "naive", "2025-11-15T14:13:15Z"),
        (1763215995, "epoch", "2025-11-15T14:13:15Z"),
        (1763215995.0, "epoch", "2025-11-15T14:13:15Z"),
        ("1763215995", "epoch", "2025-11-15T14:13:15Z"),
        (1763215995000, "epoch_ms", "2025-11-15T14:13:15Z"),
        ("1763215995000", "epoch_ms", "2025-11-15T14:13:15Z"),
    ],
)
def test_every_form_tells_the_same_instant(value: object, form: str, text: str) -> None:
    found = read_moment(value)
    assert (found.instant, found.form, found.text) == (INSTANT, form, text)
    assert written(found, "epoch") == INSTANT
    assert read_moment(written(found, "utc")).instant == INSTANT


def test_fractions_are_kept() -> None:
    found = read_moment("2025-11-15T14:13:15.250000Z")
    assert found.instant == INSTANT + 0.25
    assert written(found, "utc") == "2025-11-15T14:13:15.250000Z"


def test_a_time_without_zone_is_taken_as_utc() -> None:
    found = read_moment("2025-11-15T14:13:15")
    assert (found.instant, found.text) == (INSTANT, "2025-11-15T14:13:15Z")


@pytest.mark.parametrize(
    "value",
    [
        "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
        "CLS heartbeat 2025-10-31 05:55:53 #2036",
        "2026-03",
        "2025-00-00",
        "2025-11-15",
        "2025-13-01T00:00:00Z",
        "",
        True,
        None,
        [],
        12,
        float("nan"),
        10**30,
    ],
)
def test_what_tells_no_time_is_refused_with_a_reason(value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_moment(value)


@given(st.text() | st.floats() | st.integers())
def test_nothing_else_ever_happens(value: object) -> None:
    try:
        found = read_moment(value)
    except ValueError:
        return
    assert read_moment(found.text).instant == pytest.approx(found.instant, abs=1e-6)
