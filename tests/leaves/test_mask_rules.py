"""What the rules for texts find, what they leave alone, and how fast they are."""

from __future__ import annotations

import base64
import json
import re
import time
from hashlib import sha1, sha256
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import mask as measured
from holdfast.mask import by_key_name, hiding
from holdfast.mask.encoded import Forms

MASK = by_key_name(lambda: b"k" * 32)


def masked(text: str) -> str:
    return MASK({"text": text})["text"]


COMMANDS = [
    ("PGPASSWORD={} psql -h db", "x"),
    ("mysql -u root -p{} shop", "hunter2"),
    ("sshpass -p {} ssh host", "hunter2"),
    ("tool --password {} --verbose", "x"),
    ("tool --db-password={} --verbose", "hunter2"),
    ("tool --api-key '{}'", "abc123def456"),
    ("curl -u bob:{} https://example.org", "hunter2"),
    ("curl --user bob:{} https://example.org", "hunter2"),
    ("git clone https://bob:{}@example.org/x.git", "pass"),
    ("curl -H 'X-Api-Key: {}' https://example.org", "9f8e7d6c5b4a39281706"),
    ("curl -H 'Authorization: Bearer {}' https://example.org", "abcdef"),
    ("curl -b 'Cookie: {}' https://example.org", "sid=31d4d96e407aad42"),
    ("export STRIPE_KEY={}", "abcd1234efgh5678ijkl"),
    ('config: {{"client_secret": "{}"}}', "hunter2"),
    ("connect failed: password={} rejected", "hunter2"),
    ("<password>{}</password>", "hunter2-hunter2"),
    ("curl -u :{} https://example.org", "hunter2"),
    ("curl -u {}: https://example.org", "q7Zr2pX9vK"),
    ("curl --user='bob':'{}' https://example.org", "hunter2"),
    ("curl -H 'X-Auth-Key: {}' https://example.org", "hunter2"),
    ("mongodb+srv://bob:{}@db.example.org/x", "p/w?x"),
    ("the answer was for Bearer {} only", "q7Zr2pX9vKw1"),
    ("softlayer key: {}", "zqkvxjwphbtfgdmrcylsn"),
]


@pytest.mark.parametrize(("command", "secret"), COMMANDS)
def test_the_secret_of_a_command_is_masked_and_the_rest_stays(command: str, secret: str) -> None:
    before, after = command.replace("{{", "{").replace("}}", "}").split("{}", 1)
    text = f"{before}{secret}{after}"
    found = masked(text)
    assert found.startswith(before + "[SECRET:"), found
    assert found.endswith("]" + after), found
    assert masked(found) == found


@pytest.mark.parametrize(
    "argv",
    [
        ["tool", "--password", "hunter2"],
        ["curl", "-u", "bob:hunter2", "https://example.org"],
        ["tool", "--api-token", "hunter2", "-v"],
        ["env", "PASSWORD=hunter2", "tool"],
    ],
)
def test_the_secret_of_a_command_in_pieces_is_masked(argv: list[str]) -> None:
    found = MASK({"argv": argv})["argv"]
    assert "hunter2" not in repr(found)
    assert found[0] == argv[0]
    assert len(found) == len(argv)
    assert MASK({"argv": found})["argv"] == found


def test_the_secret_of_a_command_is_masked_however_often_its_options_were_met() -> None:
    for secret in ("correcthorse", "batterystaple", "correcthorse"):
        found = MASK({"argv": ["tool", "--push-token", secret]})["argv"]
        assert found[:2] == ["tool", "--push-token"]
        assert found[2].startswith("[SECRET:option:")


def test_a_variable_that_is_told_by_name_and_value_is_masked() -> None:
    record: dict[str, Any] = {
        "env": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "A", "value": "x"}]
    }
    assert [one["value"][:8] for one in MASK(record)["env"]] == ["[SECRET:", "x"]


def test_what_a_secret_of_kubernetes_holds_is_masked() -> None:
    text = "apiVersion: v1\ndata:\n  user: Ym9i\n  word: aHVudGVyMg==\nkind: Secret\n"
    found = masked(text)
    assert "Ym9i" not in found
    assert "aHVudGVyMg" not in found
    assert found.endswith("\nkind: Secret\n")
    assert masked(text.replace("Secret", "ConfigMap")) == text.replace("Secret", "ConfigMap")


def test_tags_without_a_key_say_nothing_and_are_left_alone() -> None:
    hide = hiding()
    found = hide({"text": f"curl -u bob:hunter2 -H 'X-Api-Key: {TOKEN}'", "api_key": "word"})
    assert found == {"text": "curl -u bob:[SECRET] -H 'X-Api-Key: [SECRET]'", "api_key": "[SECRET]"}
    assert hide(found) == found
    assert MASK(found) == found


HARMLESS = [
    "line 4b1d81884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a0812",
    "mongodb://localhost:27017/test",
    "kind: Secret of a good night",
    "the bearer announced it",
    "key = abcdefghijklmnopqrstuvwxyz",
    "key = SomeQuiteLongNameOfAClassHere",
    "/srv/data/2026-11-15/worker-7/9f86d081/part-00001-of-00007",
    "commit 3f2a8b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6",
    "HEAD is now at 3f2a8b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6 mask: fewer words",
    "GITHUB_SHA=3f2a8b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    '{"hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}',
    '{"prev":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","seq":3}',
    "request 123e4567-e89b-12d3-a456-426614174000 took 31 ms",
    "session 2026-11-15_rio_001 of rio ended",
    "session=01JCVX6Q0V8ZK3H9M2N4P5R6S7",
    "msg_01XFDUDYJgAACzvnptvVoYEL answered toolu_01A09q90qw90lq917835lq9",
    "chatcmpl-9abcDEFghiJKLmnoPQRstuVWxyz12",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 8).decode(),
    "sha512-" + base64.b64encode(bytes(range(64))).decode(),
    "the token was revoked, ask for a new password",
    "tokens: 1200 in, 300 out; token limit: 200000",
    "docker run -u 1000:1000 image",
    "def f(password=None, token=self.token): return tokenizer.next(token)",
    "src/holdfast/store/memory_mailbox.py::test_a_letter_2",
    "https://example.org/path?page=2&sort=name",
    "2026-11-15T22:26:03.123456+00:00",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert masked(text) == text


TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.mark.parametrize("encoding", measured.ENCODINGS)
def test_a_secret_has_the_same_tag_in_every_encoding(encoding: str) -> None:
    tag = masked(TOKEN)
    assert tag.startswith("[SECRET:github:")
    text = measured.ENCODINGS[encoding](f"it said {TOKEN} and ended")
    found = masked(text)
    assert TOKEN not in found
    assert tag in found
    assert masked(found) == found


def test_an_encoding_inside_another_is_seen_through() -> None:
    text = base64.b64encode(
        json.dumps({"data": base64.b64encode(TOKEN.encode()).decode()}).encode()
    )
    assert masked(TOKEN) in masked(text.decode())


def test_a_long_text_takes_time_by_its_length_whatever_it_says() -> None:
    units = [
        "token=abc ", "password: ", "-eyJaaaaaaaaaaaa", "Q~", "0Q~", "-us1", "--token ", "://a:",
        "%3d", "&#x3d;", "\\u003d", "é=token:", "\0", "=>12345678", "sk-", "github=", "aGVsbG8gd29",
        "-----BEGIN", "-u a:", '"',
    ]  # fmt: skip
    for unit in units:
        text = unit * (200_000 // len(unit))
        started = time.process_time()
        masked(text)
        assert time.process_time() - started < 3, unit


def test_hashes_take_no_longer_for_being_different() -> None:
    rng = Random("hashes")
    different = [rng.randbytes(20).hex() for _ in range(4000)]
    seconds: list[float] = []
    masked(f"{different[0]} " * 200)  # what is compiled when it is first needed
    for hashes in (different[:1] * len(different), different):
        text = "\n".join(f"commit {each} of 2026" for each in hashes)
        started = time.process_time()
        assert masked(text) == text
        seconds.append(time.process_time() - started)
    assert seconds[1] < seconds[0] * 3


WORD = re.compile(rb"[A-Za-z0-9+/_-]+")
ODD = re.compile(rb"(?:[A-Z][a-z][A-Z]|[a-z][A-Z]{2})[A-Za-z+/_-]{12,}")
RUN_PARTS = [
    "a", "B", "9", "-", "/", "=", "\n", " ", ":", "xyZ", "AbC", "aBC", "abcdefghijkl",
    "0123456789ab", "ABCDEFGHIJKLMNOPQR", "_of_this_",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(RUN_PARTS), max_size=30).map("".join))
def test_every_long_word_with_a_digit_or_odd_capitals_begins_a_run(text: str) -> None:
    data = text.encode()
    runs = list(Forms().runs(data))
    for before, after in pairwise(runs):
        assert before[1] <= after[0]
    for word in WORD.finditer(data):
        dense = len(word[0]) >= 24 and re.search(rb"[0-9]", word[0])
        dense = dense or (len(word[0]) >= 24 and ODD.search(word[0]))
        inside = any(start <= word.start() and word.end() <= end for start, end in runs)
        assert inside or not dense


@pytest.mark.parametrize("size", [20, 32])
def test_a_secret_in_hex_is_no_digest_though_it_is_as_long_as_one(size: int) -> None:
    text = f"password={TOKEN}"[:size].encode().hex()
    assert masked(text).startswith("[SECRET:password:")
    for digest in (sha1(text.encode()).hexdigest(), sha256(text.encode()).hexdigest()):
        record = {"request": digest, "note": "beside password=hunter2"}
        assert MASK(record)["request"] == digest


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text(), st.sampled_from([TOKEN, "password=hunter2", "curl -u bob:hunter2"]))
def test_masking_again_changes_nothing_more(before: str, after: str, secret: str) -> None:
    text = f"{before} {secret} {after}"
    once = masked(text)
    assert "hunter2 " not in once
    assert TOKEN not in once
    assert masked(once) == once


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000))
def test_junk_is_no_trouble(junk: bytes) -> None:
    text = junk.decode("latin-1")
    assert masked(masked(text)) == masked(text)


@pytest.fixture(scope="module")
def samples() -> list[measured.Sample]:
    try:
        return measured.samples(1, seed=1)
    except measured.Unavailable as reason:
        pytest.skip(f"no samples: {reason}")


def test_most_samples_of_other_scanners_are_found(samples: list[measured.Sample]) -> None:
    missed = [sample.rule for sample in samples if measured.leaks(masked, sample)]
    share = 1 - len(missed) / len(samples)
    print(f"recall {share:.2%} of {len(samples)} samples; missed {sorted(missed)}")
    assert len(samples) > 450
    assert share >= 0.985


def test_most_encoded_samples_are_found(samples: list[measured.Sample]) -> None:
    for encoding in measured.ENCODINGS:
        missed = sum(measured.leaks(masked, sample, encoding) for sample in samples)
        share = 1 - missed / len(samples)
        print(f"recall {share:.2%} in {encoding}")
        assert share >= 0.96, encoding


def test_hardly_any_line_of_real_sources_is_changed() -> None:
    sources = measured.source_files(3_000_000, seed=1)
    changed, lines = measured.false_hits(masked, sources)
    print(f"{changed} of {lines} lines changed")
    assert lines > 50_000
    assert changed / lines <= 0.001
