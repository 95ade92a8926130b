"""`ledger repair`: what can be saved goes into a new file, and nothing else is touched."""

from __future__ import annotations

import base64
import json
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.interop.records import pieces, repair
from holdfast.testing import refused
from tests.ledger.shell import Shell, Verbs
from tests.ops.foreign import entry, lines, put, snapshot

PRETTY = json.dumps(entry(7), indent=2).encode()


def parsed(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def learning_db() -> bytes:
    """13 lines, each with one or two closing brackets too many."""
    rows = [json.dumps({"id": n, "lesson": {"text": f"l{n} }}", "tags": ["a"]}}) for n in range(13)]
    return b"".join(row.encode() + b"}" * (1 + n % 2) + b"\n" for n, row in enumerate(rows))


def test_thirteen_lines_with_brackets_too_many_are_thirteen_records() -> None:
    saved = repair(learning_db())
    assert (saved.entries, saved.mended) == (13, 13)
    assert [record["id"] for record in parsed(saved.data)] == list(range(13))
    assert all(record["lesson"]["tags"] == ["a"] for record in parsed(saved.data))


@pytest.mark.parametrize(
    ("data", "entries", "rejects"),
    [
        (lines([entry(1), entry(2)]), 2, 0),
        (lines([entry(1)]) + b'{"ts": "2025-11', 1, 1),
        (lines([entry(1)])[:-1], 1, 0),
        (json.dumps(entry(1)).encode() + json.dumps(entry(2)).encode() + b"\n", 2, 0),
        (PRETTY + b"\n" + PRETTY + b"\n" + lines([entry(1)]), 3, 0),
        (lines([entry(1), b"\xff\xfe junk", entry(2)]), 2, 1),
        (lines([entry(1), b"\0" * 40, entry(2)]), 2, 1),
        (lines([entry(1), b"", b"  ", entry(2)]), 2, 0),
        (lines([entry(1), b"[1, 2]", entry(2)]), 2, 1),
        (b"\xef\xbb\xbf" + lines([entry(1)]), 1, 0),
        (lines([entry(1)]).replace(b"\n", b"\r\n"), 1, 0),
        (lines([b"#!/bin/sh", b"set -eu", b"echo x"]), 0, 3),
        (b"", 0, 0),
    ],
)
def test_every_record_that_can_be_read_is_saved_and_the_rest_is_kept_aside(
    data: bytes, entries: int, rejects: int
) -> None:
    saved = repair(data)
    assert (saved.entries, len(saved.rejects)) == (entries, rejects)
    assert len(parsed(saved.data)) == entries
    assert len(parsed(saved.reject_lines)) == rejects


def test_sound_lines_are_taken_over_byte_for_byte() -> None:
    odd = b'{"b" :1.50,  "a": "\\u00e9", "big": 12345678901234567890123}\n'
    data = odd + b"junk\n" + odd
    assert repair(data).data == odd + odd


def test_a_reject_says_where_it_was_why_and_what() -> None:
    data = lines([entry(1), b"junk \xc3\xa9", entry(2), b"\xff"])
    text, binary = parsed(repair(data).reject_lines)
    assert (text["line"], text["text"]) == (2, "junk é\n")
    assert data[text["offset"] :].startswith(b"junk")
    assert "not JSON" in text["reason"]
    assert (binary["line"], base64.b64decode(binary["base64"])) == (4, b"\xff\n")


def test_fifty_good_lines_survive_one_bad_one() -> None:
    good = lines(entry(n) for n in range(50))
    saved = repair(good + b'{"ts": "2025-11-16T02:59:59+07:00", "agent": "cl\n')
    assert saved.data == good


pieces_of_files = st.one_of(
    st.builds(lambda n: lines([entry(n % 60)]), st.integers(0, 59)),
    st.just(PRETTY + b"\n"),
    st.just(b'{"a": 1}{"b": 2}\n'),
    st.just(b'{"a": {"b": 1}}}\n'),
    st.just(b'{"a": {"b": 1}\n'),
    st.just(b"\n"),
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"") + b"\n"),
)


@given(st.lists(pieces_of_files, max_size=10), st.integers(0, 60))
def test_no_byte_is_lost_and_no_record_that_had_a_line(parts: list[bytes], cut: int) -> None:
    data = b"".join(parts)
    data = data[: len(data) - cut] if cut else data
    places = dict.fromkeys((each.offset, each.raw) for each in pieces(data))
    assert list(places) == sorted(places)
    covered = b"".join(raw for _, raw in places)
    assert b"".join(covered.split()) == b"".join(data.removeprefix(BOM_UTF8).split())

    saved = repair(data)
    before = [line.strip() for line in data.split(b"\n") if _is_record(line)]
    after = saved.data.splitlines()
    remaining = list(after)
    for line in before:
        assert line in remaining
        remaining.remove(line)
    assert repair(saved.data).data == saved.data
    assert repair(saved.data).rejects == []


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


# --- the verb -------------------------------------------------------------------------------


def test_the_verb_makes_two_new_files_and_leaves_the_old_one(verbs: Verbs, tmp_path: Path) -> None:
    file = put(tmp_path / "in/learning_db.jsonl", learning_db() + b"not a record\n")
    before = snapshot(file.parent)
    done = verbs("ledger repair", file=[str(file)])
    (row,) = done.rows
    assert (row["state"], row["entries"], row["mended"], row["rejects"]) == ("repaired", 13, 13, 1)
    assert done.exit_code == 1
    assert {each.name for each in file.parent.iterdir()} == {
        "learning_db.jsonl",
        "learning_db.jsonl.repaired",
        "learning_db.jsonl.rejects",
    }
    after = snapshot(file.parent)
    assert after["learning_db.jsonl"] == before["learning_db.jsonl"]
    assert len(parsed(Path(row["out"]).read_bytes())) == 13
    assert parsed(Path(row["rejects_file"]).read_bytes())[0]["text"] == "not a record\n"

    again = verbs("ledger repair", file=[str(file)])
    assert snapshot(file.parent) == after
    assert again.rows == done.rows


def test_a_repair_without_rejects_succeeds(verbs: Verbs, tmp_path: Path) -> None:
    file = put(tmp_path / "x.jsonl", learning_db())
    assert verbs("ledger repair", file=[str(file)]).exit_code == 0
    assert not (tmp_path / "x.jsonl.rejects").exists()


def test_a_dry_run_only_tells(verbs: Verbs, tmp_path: Path) -> None:
    file = put(tmp_path / "in/x.jsonl", learning_db())
    before = snapshot(file.parent)
    done = verbs("ledger repair", file=[str(file)], dry_run=True)
    assert (done.rows[0]["state"], done.rows[0]["entries"]) == ("repaired", 13)
    assert snapshot(file.parent) == before


@pytest.mark.parametrize(
    ("data", "state", "code"),
    [
        (b"", "empty", 1),
        (b"\n\n", "empty", 1),
        (b"#!/bin/sh\n" * 24, "nothing to save", 1),
        (lines([entry(1), entry(2)]), "sound", 0),
    ],
)
def test_no_file_is_made_where_there_is_nothing_to_save_or_to_mend(
    verbs: Verbs, tmp_path: Path, data: bytes, state: str, code: int
) -> None:
    file = put(tmp_path / "in/x.jsonl", data)
    before = snapshot(file.parent)
    done = verbs("ledger repair", file=[str(file)])
    assert (done.rows[0]["state"], done.exit_code) == (state, code)
    assert snapshot(file.parent) == before


def test_what_is_in_the_way_is_not_overwritten(verbs: Verbs, tmp_path: Path) -> None:
    file = put(tmp_path / "x.jsonl", learning_db())
    put(tmp_path / "x.jsonl.repaired", "mine")
    with refused(UsageError, "holds something else"):
        verbs("ledger repair", file=[str(file)])
    with refused(UsageError, "holds something else"):
        verbs("ledger repair", file=[str(file)], out=str(file))
    assert file.read_bytes() == learning_db()
    assert (tmp_path / "x.jsonl.repaired").read_bytes() == b"mine"
    out = str(tmp_path / "y.jsonl")
    assert verbs("ledger repair", file=[str(file)], out=out).rows[0]["out"] == out


def test_out_is_for_one_file_and_several_are_repaired_beside_themselves(
    verbs: Verbs, tmp_path: Path
) -> None:
    files = [str(put(tmp_path / f"{n}.jsonl", learning_db())) for n in range(2)]
    with refused(UsageError, "--out is for one file"):
        verbs("ledger repair", file=files, out=str(tmp_path / "x"))
    done = verbs("ledger repair", file=files)
    assert (done.counts["repaired"], done.counts["entries"]) == (2, 26)


def test_restoring_from_a_backup_is_a_union_with_never_fewer_entries(
    verbs: Verbs, shell: Shell, tmp_path: Path
) -> None:
    backup = put(tmp_path / "backup.jsonl", lines(entry(n) for n in range(30)))
    day = put(tmp_path / "day.jsonl", lines(entry(n) for n in range(10, 60)) + b'{"ts"\n')
    (row,) = verbs("ledger repair", file=[str(day)]).rows
    assert row["entries"] == 50
    out = tmp_path / "restored.jsonl"
    ran = shell("ledger", "merge", str(backup), row["out"], "--out", str(out), "--json")
    assert (ran.code, ran.json()["data"]["entries"]) == (0, 60)
    assert all(path.stat().st_size for path in (backup, day, Path(row["out"]), out))
