"""`ledger merge`: the union of files by content."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.formats import read_moment
from holdfast.errors import NotFound, UsageError
from holdfast.interop.records import merge
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import REPO, Shell, Verbs, day_files
from tests.ops.foreign import ap_io, entry, lines, put, snapshot

STAMPS = [
    "2025-12-06T08:00:00+07:00",
    "2025-12-06T01:00:00Z",
    "2025-12-06T08:00:00+0700",
    "2025-12-06T01:00:00.250Z",
    1764982800,
    1764982800500,
    "CLS heartbeat",
    None,
]


def bare(data: bytes) -> list[dict[str, Any]]:
    """The entries of a merged file, without number and hash."""
    records = [json.loads(line) for line in data.splitlines()]
    assert [record.pop("seq") for record in records] == list(range(1, len(records) + 1))
    assert all(len(record.pop("hash")) == 64 for record in records)
    return records


def days() -> tuple[bytes, bytes, bytes]:
    """Three versions of one day: 496 lines, 525 that contain them, 21 that nobody else has."""
    chance = random.Random(7)
    first = [entry(chance.randrange(60), summary=f"File modified {n}") for n in range(496)]
    more = [entry(chance.randrange(60), summary=f"later {n}") for n in range(29)]
    other = [
        {"tags": ["x"], "title": f"t{n}", "ts": entry(n)["ts"], "type": "a"} for n in range(21)
    ]
    return lines(first), lines([*first, *more]), lines(other)


def test_three_versions_of_a_day_are_546_entries() -> None:
    merged = merge(dict(zip("abc", days(), strict=True)))
    assert merged.entries == len(bare(merged.data)) == 546
    assert [source.news for source in merged.sources.values()] == [496, 29, 21]


def test_four_versions_without_a_common_line_keep_them_all() -> None:
    files = [b"", lines([entry(1)]), lines([entry(2)]), lines([entry(3), entry(4)])]
    merged = merge(dict(zip("abcd", files, strict=True)))
    assert [record["task_id"] for record in bare(merged.data)] == ["wo-1", "wo-2", "wo-3", "wo-4"]


def test_the_order_of_the_files_does_not_matter() -> None:
    results = {merge(dict(zip("abc", each, strict=True))).data for each in permutations(days())}
    assert len(results) == 1


def test_merging_again_changes_nothing() -> None:
    merged = merge(dict(zip("abc", days(), strict=True))).data
    assert merge({"m": merged}).data == merged
    assert merge({"m": merged, **dict(zip("abc", days(), strict=True))}).data == merged


records = st.lists(
    st.fixed_dictionaries(
        {"summary": st.sampled_from("abcd"), "ts": st.sampled_from(STAMPS)},
        optional={"seq": st.integers(0, 9), "hash": st.just("f" * 64), "x": st.floats(0, 1)},
    ),
    max_size=12,
)


@given(st.lists(records, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_union_is_a_union(files: list[list[dict[str, Any]]], chance: random.Random) -> None:
    def content(record: dict[str, Any]) -> str:
        kept = {name: value for name, value in record.items() if name not in ("seq", "hash")}
        return json.dumps(kept, sort_keys=True)

    merged = bare(merge({str(n): lines(each) for n, each in enumerate(files)}).data)
    assert {content(each) for file in files for each in file} == {content(each) for each in merged}
    assert len({content(each) for each in merged}) == len(merged)

    def instant(record: dict[str, Any]) -> float:
        try:
            return read_moment(record["ts"]).instant
        except ValueError:
            return float("inf")

    assert [instant(each) for each in merged] == sorted(instant(each) for each in merged)

    shuffled = [[shuffle_fields(record, chance) for record in file] for file in files]
    for file in shuffled:
        chance.shuffle(file)
    chance.shuffle(shuffled)
    again = merge({str(n): lines(each) for n, each in enumerate(shuffled)}).data
    assert [content(each) for each in bare(again)] == [content(each) for each in merged]


def shuffle_fields(record: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    return dict(chance.sample(list(record.items()), len(record)))


def test_entries_of_all_forms_are_ordered_by_their_instant() -> None:
    flat = {"timestamp": "2025-11-15T16:02:00Z", "agent": "Liam", "event": "x", "ledger_id": "1"}
    files = {"a": lines([entry(1), flat]), "b": lines([ap_io(1, "wo-8"), ap_io(5, "wo-9")])}
    found = bare(merge(files).data)
    assert [each.get("ts", each.get("timestamp")) for each in found] == [
        "2025-11-15T21:01:35+07:00",
        "2025-11-15T21:05:35+07:00",
        "2025-11-15T16:02:00Z",
        "2025-11-16T02:01:00+07:00",
    ]


def test_the_result_is_chained_as_any_log_of_ours(verbs: Verbs, shell: Shell) -> None:
    out = shell.place / "merged.jsonl"
    paths = [put(shell.place / f"{n}.jsonl", data) for n, data in enumerate(days())]
    verbs("ledger merge", file=[str(path) for path in paths], out=str(out))
    checked = shell.run(["python3", str(REPO / "tools/verify_log.py"), str(out)])
    assert checked.code == 0, checked.err
    assert "546" in checked.out


def test_lines_that_a_log_wrote_about_itself_are_no_entries() -> None:
    ours = {"ts": "2025-11-16T02:00:00Z", "_log": "cut_tail", "lost": 3, "hash_of_lost": "0" * 64}
    merged = merge({"a": lines([ours, entry(1)])})
    assert (merged.entries, merged.sources["a"].rejects) == (1, [])


# --- the verb -------------------------------------------------------------------------------


def files_of(place: Path, contents: Sequence[bytes]) -> list[str]:
    return [str(put(place / f"in/{n}.jsonl", data)) for n, data in enumerate(contents)]


def test_the_verb_reads_only_and_tells_what_came_together(verbs: Verbs, tmp_path: Path) -> None:
    files = files_of(tmp_path, days())
    before = snapshot(tmp_path / "in")
    out = str(tmp_path / "out.jsonl")
    done = verbs("ledger merge", file=files, out=out)
    assert (done.applied, done.exit_code, done.data["entries"]) == (True, 0, 546)
    assert done.data["duplicates"] == 496
    assert snapshot(tmp_path / "in") == before

    again = verbs("ledger merge", file=[*reversed(files), out], out=out)
    assert (again.applied, again.exit_code, again.data["entries"]) == (False, 0, 546)


def test_a_dry_run_makes_no_file(verbs: Verbs, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = verbs("ledger merge", file=files_of(tmp_path, days()), out=str(out), dry_run=True)
    assert (done.applied, done.dry_run, done.data["entries"]) == (False, True, 546)
    assert not out.exists()


def test_nothing_is_overwritten(verbs: Verbs, tmp_path: Path) -> None:
    out = put(tmp_path / "out.jsonl", "mine\n")
    with refused(UsageError, "holds something else"):
        verbs("ledger merge", file=files_of(tmp_path, days()), out=str(out))
    assert out.read_bytes() == b"mine\n"
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_what_cannot_be_merged_is_told_and_asks_for_attention(verbs: Verbs, tmp_path: Path) -> None:
    damaged = (
        lines([entry(1), b"#!/bin/sh", b'{"ts": "x", "n": 1, "n": 2}', entry(2)]) + b'{"ts": "'
    )
    done = verbs("ledger merge", file=files_of(tmp_path, [damaged]), out=str(tmp_path / "out"))
    assert (done.exit_code, done.data["entries"], done.data["rejects"]) == (1, 2, 3)
    told = "\n".join(verbs.warnings)
    assert all(f"0.jsonl:{number}: " in told for number in (2, 3, 5))


def test_a_file_that_is_not_there_is_not_found(verbs: Verbs, tmp_path: Path) -> None:
    for missing in ("nothing.jsonl", "no/folder.jsonl"):
        with refused(NotFound):
            verbs("ledger merge", file=[str(tmp_path / missing)], out=str(tmp_path / "out"))
    with refused(NotFound, "no such folder"):
        files = files_of(tmp_path, [lines([entry(1)])])
        verbs("ledger merge", file=files, out=str(tmp_path / "no/out"))


def test_merging_needs_no_home(shell: Shell) -> None:
    files = files_of(shell.place, days())
    ran = shell("ledger", "merge", *files, "--out", str(shell.place / "out.jsonl"), "--json")
    assert (ran.code, ran.json()["data"]["entries"]) == (0, 546)
    assert not shell.home.exists()


@pytest.mark.parametrize("name", ["2025-12-06.jsonl", "with space.jsonl"])
def test_a_merged_file_can_be_read_back_by_its_name(
    verbs: Verbs, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    verbs("ledger merge", file=files_of(tmp_path, days()), out=str(out))
    assert len(bare(out.read_bytes())) == 546


def test_packed_files_are_merged_as_what_is_in_them(
    verbs: Verbs, clock: Turner, tmp_path: Path
) -> None:
    for number in range(3):
        verbs.write(f"text {number}")
        clock.advance(DAY)
    before = b"".join(file.read_bytes() for file in day_files(verbs.path, "rio"))
    verbs("ledger archive")
    files = sorted(str(file) for file in Path(verbs.path, "ledger/rio").glob("2*"))
    assert [file.endswith(".zst") for file in files] == [True, True, False]
    out = tmp_path / "merged.jsonl"
    verbs("ledger merge", file=files, out=str(out))
    assert out.read_bytes() == before
