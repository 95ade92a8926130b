"""Secrets under a telling name become tags that do not tell."""

from __future__ import annotations

import base64
import copy
import re
import time
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadValue
from holdfast.mask import by_key_name, hiding, nothing

MASK = by_key_name(lambda: b"k" * 32)
SECRET = "s3cr3t-value"
MODEL_KEY = "sk-ant-api03-" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789" * 2

TELLING = [
    "password", "PASSWORD", "db_password", "dbPassword", "db-password", "passwd", "passphrase",
    "secret", "client_secret", "clientSecret", "api_key", "apiKey", "apikey", "API-KEY",
    "x-api-key", "private_key", "access_key", "AWS_SECRET_ACCESS_KEY", "auth_token", "accessToken",
    "refresh_token", "bearer", "Authorization", "cookie", "Cookies", "credentials", "api_keys",
]  # fmt: skip
HARMLESS = [
    "passwords_changed", "secretary", "tokens", "token_input", "total_tokens", "key", "keyboard",
    "cookiecutter", "authorized", "apikeyed", "n", "",
]  # fmt: skip


@pytest.mark.parametrize("name", TELLING)
def test_a_value_under_a_telling_name_is_masked(name: str) -> None:
    masked = MASK({name: SECRET, "n": 1})
    assert SECRET not in repr(masked)
    assert masked[name].startswith("[SECRET:")
    assert masked["n"] == 1


@pytest.mark.parametrize("name", HARMLESS)
def test_a_value_under_another_name_stays(name: str) -> None:
    assert MASK({name: SECRET}) == {name: SECRET}


def test_everything_below_a_telling_name_is_masked() -> None:
    masked = MASK({"credentials": {"user": SECRET, "list": [SECRET, (SECRET, 7)]}, "n": SECRET})
    assert masked["n"] == SECRET
    assert SECRET not in repr(masked["credentials"])
    assert masked["credentials"]["list"][1][1] == 7


def test_the_same_secret_has_the_same_tag_and_another_key_another_one() -> None:
    tag = MASK({"secret": SECRET})["secret"]
    assert MASK({"deep": [{"secret": SECRET}]})["deep"][0]["secret"] == tag
    assert by_key_name(lambda: b"other")({"secret": SECRET})["secret"] != tag
    assert MASK({"secret": "else"})["secret"] != tag


def test_masking_twice_changes_nothing_more() -> None:
    once = MASK({"password": SECRET, "apiKey": [SECRET]})
    assert MASK(once) == once


def test_a_record_without_a_secret_is_the_same_one_however_long() -> None:
    harmless = {"text": "see that: a=b, or https://example.org/x?y=z; " * 300, "n": [1, {"m": 2}]}
    assert MASK(harmless) is harmless
    long = {"text": "words " * 2000 + "password=hunter2-and-more"}
    assert MASK(long) != long


@pytest.mark.parametrize("key", [MODEL_KEY, f"OPENAI_API_KEY={MODEL_KEY}", f"key {MODEL_KEY}"])
def test_a_secret_is_masked_where_it_is_a_key_itself(key: str) -> None:
    for _ in range(3):  # also one that was met before
        masked = MASK({"meta": {key: "v", "deploy/eu-west-1": 1}, "n": [{key: {key: 2}}]})
        assert MODEL_KEY not in repr(masked)
        assert "[SECRET:" in next(iter(masked["meta"]))
        assert [*masked["meta"].values()] == ["v", 1]
        assert MASK(masked) == masked


def test_two_keys_with_the_same_tag_keep_both_values() -> None:
    masked = hiding()({MODEL_KEY: 1, MODEL_KEY[:-1] + "Q": 2})
    assert [*masked.values()] == [1, 2]
    assert MODEL_KEY[:-1] not in repr(masked)


def test_an_empty_secret_is_shown_as_empty() -> None:
    assert MASK({"password": "", "secret": None}) == {"password": "", "secret": None}


def test_a_secret_that_is_no_valid_text_is_masked_too() -> None:
    assert MASK({"password": "\ud800"})["password"].startswith("[SECRET:password:")


def test_a_key_of_any_length_will_do() -> None:
    for length in (0, 1, 64, 1000):
        mask = by_key_name(lambda length=length: b"k" * length)
        assert mask({"secret": "x"})["secret"].startswith("[SECRET:secret:")


def test_the_key_is_asked_for_only_when_there_is_a_secret() -> None:
    asked: list[str] = []
    mask = by_key_name(lambda: bytes(asked.append("!") or 32))
    assert mask({"n": "x"}) == {"n": "x"}
    assert asked == []
    mask({"secret": "x"})
    assert asked == ["!"]


def test_the_records_of_the_caller_are_left_alone() -> None:
    record: dict[str, Any] = {"password": SECRET, "list": [{"secret": SECRET}]}
    before = copy.deepcopy(record)
    MASK(record)
    assert record == before


def test_a_record_that_contains_itself_is_refused() -> None:
    record: dict[str, Any] = {}
    record["again"] = record
    with pytest.raises(BadValue) as caught:
        MASK(record)
    assert caught.value.hint


def test_names_that_are_no_text_are_left_to_the_codec() -> None:
    odd: Any = {1: SECRET, None: SECRET}
    assert MASK(odd) == odd


def test_a_store_without_a_masker_masks_nothing() -> None:
    record = {"password": SECRET}
    assert nothing(record) is record


HEADERS = [
    f"curl -H 'Authorization: Bearer {SECRET}' https://example.org",
    f'curl -H "authorization: bearer {SECRET}"',
    f"AUTHORIZATION: Basic {SECRET}",
    f"Proxy-Authorization:Token {SECRET}\nAccept: */*",
    f'{{"Authorization": "Bearer {SECRET}"}}',
    f'"{{\\"Authorization\\": \\"Bearer {SECRET}\\"}}"',
    f"authorization=Bearer {SECRET}",
    f'Authorization: Digest username="u", response="{SECRET}"',
    f"Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature={SECRET}",
    f"twice Authorization: Bearer {SECRET} and Authorization: Bearer {SECRET}.",
]


@pytest.mark.parametrize("text", HEADERS)
def test_the_credentials_of_a_header_inside_a_text_are_masked(text: str) -> None:
    for record in ({"cmd": text}, {"data": {"log": ["x", text]}}, {"n": 1, "summary": text}):
        masked = MASK(record)
        assert SECRET not in repr(masked)
        assert "[SECRET:authorization:" in repr(masked)
        assert MASK(masked) == masked
    before, after = text.split(SECRET, 1)[0], text.rsplit(SECRET, 1)[1]
    if "username" not in text and "Credential" not in text:
        masked = MASK({"cmd": text})["cmd"]
        assert masked.startswith(before)
        assert masked.endswith(after.lstrip("."))


@pytest.mark.parametrize(
    "text",
    [
        "authorization: failed because the key was old",
        "Authorization of the bearer token failed",
        "the Authorization header is missing",
        "Bearer of bad news",
    ],
)
def test_prose_about_headers_stays(text: str) -> None:
    assert MASK({"summary": text, "n": [text]}) == {"summary": text, "n": [text]}


def test_long_texts_take_no_longer_than_their_length() -> None:
    """Hostile ones too: four times the text takes about four times as long, not sixteen."""

    def seconds(unit: str, size: int) -> float:
        text = "uthorization" + unit * (size // len(unit))
        started = time.process_time()
        MASK({"cmd": text})
        return time.process_time() - started

    for unit in ("Authorization: ", "authorization:Bearer \t", "Authorization: Digest a='", " \t"):
        assert seconds(unit, 1_000_000) < 9 * seconds(unit, 250_000) + 0.1


def packed(text: bytes) -> bytes:
    return base64.b64encode(zlib.compress(text, 9))


def test_what_is_packed_inside_what_is_packed_takes_no_longer_than_its_length() -> None:
    once = packed(b"key words, a text. " * 20_000)
    bomb = packed((packed((once + b" ") * 300) + b" ") * 50)
    began = time.process_time()
    masked = MASK({"n": f"here: {bomb.decode()} and there"})["n"]
    assert time.process_time() - began < 2
    assert re.fullmatch(r"here: \[SECRET:packed:[0-9a-f]{8}\] and there", masked)
    assert MASK({"n": masked}) == {"n": masked}


def test_a_text_that_is_packed_as_texts_are_is_looked_through_and_stays_if_it_may() -> None:
    lines = [f"{number} the quick brown fox {number * 7919 % 1000}" for number in range(2000)]
    text = packed("\n".join(lines).encode()).decode()
    assert MASK({"n": text}) == {"n": text}
    secret = packed("\n".join([*lines, "password=hunter2-hunter2"]).encode()).decode()
    assert MASK({"n": secret})["n"].startswith("[SECRET:")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text() | st.sampled_from(TELLING), VALUES), st.sampled_from(TELLING))
def test_no_planted_secret_survives_anywhere(record: dict[str, Any], name: str) -> None:
    planted = {**record, name: "PLANTED", "inside": [{name: ["PLANTED", {"x": "PLANTED"}]}]}
    masked = MASK(planted)
    assert "PLANTED" not in repr(masked)
    assert set(masked) == set(planted)
