"""What identifies things here is never taken for a secret, whatever field of ours it stands in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.mask import by_key_name
from tests.contracts.fixtures import fixtures

MASK = by_key_name(lambda: b"k" * 32)

HEX = "0123456789abcdef"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn(alphabet: str, size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=size, max_size=size)


WORDS = ["rio", "ada", "storage", "mailbox", "planner", "reviewer", "worker", "swarm", "night"]
names = st.builds(
    "{}{}".format,
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map("-".join),
    st.just("") | st.integers(1, 99).map("-{}".format),
)
days = st.dates().map(str)
sessions = st.builds("{}_{}_{:03}".format, days, names, st.integers(1, 999))
uuids = st.uuids().map(str)
commits = drawn(HEX, 40) | drawn(HEX, 7) | drawn(HEX, 12)
hashes = drawn(HEX, 64) | drawn(HEX, 32) | drawn(HEX, 16)
said_hashes = st.builds(
    "{}{}{}".format, st.sampled_from(["sha256", "blake2b", "sha1"]), st.sampled_from(":-="), hashes
)
ulids = st.builds("01{}".format, drawn(CROCKFORD, 24))
numbered = st.builds("{}-{:06}".format, st.sampled_from(["wo", "task", "job"]), st.integers(1))
calls = st.builds(
    "toolu_01{}".format, st.text(LETTERS + LETTERS.upper() + HEX[:10], min_size=22, max_size=22)
)
parts = names | hashes | uuids | days | sessions
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)
files = st.builds(
    "{}{}.{}".format,
    st.sampled_from(["", "/", "state/", "./"]),
    paths,
    st.sampled_from(["json", "md", "py"]),
)
moments = st.datetimes().map(lambda at: at.isoformat(timespec="seconds") + "Z")
ids = (
    sessions
    | uuids
    | commits
    | hashes
    | said_hashes
    | ulids
    | numbered
    | calls
    | paths
    | files
    | moments
    | names
)


EXAMPLES = [(each.name, value) for each in fixtures() for value in each.values()]


def filled(value: Any, put: Iterator[str]) -> Any:
    """The same record with other texts."""
    if isinstance(value, dict):
        return {name: filled(inner, put) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, put) for inner in value]
    return next(put) if isinstance(value, str) else value


@pytest.mark.parametrize(("name", "value"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_no_record_of_ours_is_changed(name: str, value: Any) -> None:
    assert MASK({"record": value})["record"] == value, name


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(EXAMPLES), st.lists(ids, min_size=1, max_size=12))
def test_no_id_is_masked_in_any_field_of_ours(example: tuple[str, Any], put: list[str]) -> None:
    record = filled(example[1], cycle(put))
    assert MASK({"record": record})["record"] == record


SENTENCES = [
    "{}", "{} and {}", "session {} ended: {}", "commit {} of {}", "see {} ({})", "{}: {}",
    "HEAD is now at {} {}", "`holdfast session show {}` in {}", "from {} to {}", '"{}", "{}"',
    "id={} path={}", "hash {} of line {}", '{{"id": "{}", "prev": "{}"}}', "run {}\n{}\n",
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SENTENCES), ids, ids)
def test_no_id_is_masked_in_what_is_said_of_it(sentence: str, one: str, other: str) -> None:
    text = sentence.format(one, other)
    assert MASK({"text": text})["text"] == text
