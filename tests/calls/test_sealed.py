"""Sensitive turns: what was said is nowhere in the home, and there for whoever has the key."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard

from holdfast.agents.chat import Question, turn
from holdfast.calls.conversation import Conversation, recorded
from holdfast.calls.turns import turns
from holdfast.clock import FakeClock, SystemClock
from holdfast.codec import Record
from holdfast.errors import ConfigError, HoldfastError, Indeterminate, NoKey
from holdfast.keys import VALUE, WHERE, as_text, held, new_key
from holdfast.layout import HOLDFAST, Part
from holdfast.models.asking import Retrying
from holdfast.models.scripted import Replay, Scripted
from holdfast.seal import Ring
from holdfast.store.home import Home
from tests.ledger.shell import Shell, Verbs, on_its_own

ASKED, SAID, BROKEN, REFUSED = "Quokka ledgers", "Axolotl answer", "Ptarmigan", "Wombat refusal"
WORDS = {word.encode() for text in (ASKED, SAID, BROKEN, REFUSED) for word in text.split()}
SCRIPT = f"""
replies:
  - {{match: schema, reply: '{{"{BROKEN}": 1}}'}}
  - {{match: refuse, error: declined, message: "{REFUSED}"}}
  - {{match: ., reply: "{SAID}"}}
"""
SCHEMA = '{"type": "object", "required": ["name"]}'


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.yaml"
    path.write_text(SCRIPT, encoding="utf-8")
    return f"scripted:{path}"


def contents(home: Path) -> Iterator[bytes]:
    """Every file with its name, and what is packed in it."""
    for file in home.rglob("*"):
        yield str(file.relative_to(home)).encode()
        if file.is_file():
            data = file.read_bytes()
            yield data
            if file.suffix == ".zst":
                yield zstandard.ZstdDecompressor().decompressobj().decompress(data)


def told_in(home: Path) -> set[bytes]:
    """The words of the conversation that a search through the whole home finds."""
    every = [data.lower() for data in contents(home)]
    return {word for word in WORDS if any(word.lower() in data for data in every)}


def tree(home: Path) -> str:
    found = sha256()
    for file in sorted(home.rglob("*")):
        found.update(str(file).encode() + (file.read_bytes() if file.is_file() else b""))
    return found.hexdigest()


@pytest.fixture
def verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(str(tmp_path / "home"), SystemClock())
    made("init", agent=["rio"], timezone="UTC")
    return made


def failing(verbs: Verbs, verb: str, **words: Any) -> HoldfastError:
    with pytest.raises(HoldfastError) as told:
        verbs(verb, **words)
    assert told.value.hint
    return told.value


@pytest.mark.parametrize("sensitive", [True, False])
def test_a_search_through_the_whole_home_finds_what_was_said_only_if_it_was_not_sensitive(
    verbs: Verbs, script: str, sensitive: bool
) -> None:
    place = Path(verbs.path)
    with (place / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write('[log]\nrotate_at = "1KB"\n')
    verbs("key new")
    chat: dict[str, Any] = {"agent": "rio", "model": script, "sensitive": sensitive}
    assert verbs("agent chat", text=ASKED, **chat).data["text"] == SAID
    broken = failing(verbs, "agent chat", text=f"schema of {ASKED}", schema=SCHEMA, **chat)
    refused = failing(verbs, "agent chat", text=f"refuse {ASKED}", **chat)
    assert (broken.code, refused.code) == ("invalid_output", "declined")
    with Home.open(verbs.path) as home:
        for part in ("conversation", "topics"):
            home.log(key(part)).archive()
    assert list(place.rglob("memory*.zst"))
    assert told_in(place) == (set() if sensitive else WORDS)
    assert not verbs("check").exit_code
    assert not verbs("doctor").exit_code
    assert verbs("validate", path=[verbs.path]).counts["warnings"] == 0
    rows = verbs.rows("agent turns", agent="rio", decrypt=True)
    last, middle, first = rows
    assert (first["question"], first["answer"]) == (ASKED, SAID)
    assert BROKEN in middle["answer"]
    assert REFUSED in last["reason"]
    closed = verbs.rows("agent turns", agent="rio")
    assert (closed[2]["answer"] == SAID) is not sensitive
    assert [row["sealed"] is not None for row in closed] == [sensitive] * 3


def test_a_key_that_is_missing_or_wrong_is_told_and_nothing_is_touched(
    verbs: Verbs, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = {"agent": "rio", "model": script}
    assert failing(verbs, "agent chat", text=ASKED, sensitive=True, **chat).code == "no_key"
    assert not Path(verbs.path, key("conversation")).exists()
    mine, other = (as_text(new_key(SystemClock())) for _ in range(2))
    monkeypatch.setenv(VALUE, mine)
    verbs("agent chat", text=ASKED, sensitive=True, **chat)
    before = tree(Path(verbs.path))
    for held_now, code in (("", "no_key"), (other, "no_key"), ("swordfish", "bad_value")):
        monkeypatch.setenv(VALUE, held_now)
        for sensitive in (True, False):
            error = failing(verbs, "agent chat", text="Go on", sensitive=sensitive, **chat)
            assert error.code == code
        assert failing(verbs, "agent turns", agent="rio", decrypt=True).code == code
        assert verbs.rows("agent turns", agent="rio")
    assert tree(Path(verbs.path)) == before
    monkeypatch.setenv(VALUE, "")
    assert "--fresh" in str(failing(verbs, "agent chat", text="Go on", **chat).hint)
    verbs("agent chat", text="All is lost", fresh=True, **chat)
    monkeypatch.setenv(VALUE, f"{mine} {other}")
    verbs("agent chat", text="Go on", **chat)
    assert verbs.warnings == ["what was said before is sealed, and so is this"]
    sealed = [row["sealed"] for row in verbs.rows("agent turns", agent="rio")]
    last, lost, first = sealed
    assert first != last
    assert lost is None


def test_keys_are_made_once_shown_when_asked_and_lie_outside_of_every_home(
    verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ".config/holdfast/keys.json"
    assert verbs("key new", dry_run=True).dry_run
    assert failing(verbs, "key rotate").code == "not_found"
    assert not place.exists()
    made = verbs("key new")
    assert str(place) in made.detail
    assert "without it nobody can read" in made.detail
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert not verbs("key new").applied
    before = place.read_bytes()
    assert verbs("key rotate", dry_run=True).dry_run
    assert place.read_bytes() == before
    verbs("key rotate")
    old, new = verbs.rows("key list", reveal=True)
    assert (old["seals"], new["seals"]) == (False, True)
    assert old["key"] not in f"{made} {verbs.rows('key list')}"
    place.chmod(0o640)
    assert failing(verbs, "key list").code == "not_ours"
    place.write_text("{}", encoding="utf-8")
    place.chmod(0o600)
    assert failing(verbs, "key rotate").code == "config"
    monkeypatch.setenv(WHERE, str(Path(verbs.path) / "state/keys.json"))
    assert failing(verbs, "key new").code == "usage"
    monkeypatch.setenv(VALUE, old["key"])
    assert failing(verbs, "key rotate").code == "usage"
    assert [row["id"] for row in verbs.rows("key list")] == [old["id"]]


def test_a_fork_is_told_what_was_sealed_for_its_parent_and_seals_it_too(
    verbs: Verbs, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs("key new")
    verbs("agent chat", agent="rio", text=ASKED, model=script, sensitive=True)
    verbs("agent fork", old="rio", new="rio-2")
    said = verbs("agent chat", agent="rio-2", text="And you?", model="scripted:echo")
    assert said.data["sealed"]
    assert verbs.warnings == ["what was said before is sealed, and so is this"]
    assert told_in(Path(verbs.path)) == set()
    monkeypatch.setenv(VALUE, as_text(new_key(SystemClock())))
    with (
        Home.open(verbs.path) as home,
        Conversation(home, lambda part: HOLDFAST.path(part, "rio-2")) as wrong,
    ):
        for _ in range(2):
            with pytest.raises(NoKey):
                wrong.recent(10**6)


def test_an_empty_answer_is_not_taken_for_a_lost_one(home: Home) -> None:
    with Conversation(home, key) as said:
        turn(said, Scripted([""]), SECRET, "s1")
    (one,) = turns(home, key, 1, decrypt=True).newest
    assert (one.question, one.answer) == (ASKED, "")


def test_what_failed_calls_told_opens_with_the_key(home: Home) -> None:
    clock = FakeClock()
    busy = [{"error": "unavailable", "message": each} for each in (BROKEN, REFUSED)]
    with Conversation(home, key) as said:
        turn(said, Retrying(Scripted([*busy, SAID], clock=clock), clock, Random(1)), SECRET, "s1")
    (closed,) = turns(home, key, 1).newest
    assert [each["message"] for each in closed.tries] == [None, None]
    (one,) = turns(home, key, 1, decrypt=True).newest
    assert [each["message"] for each in one.tries] == [BROKEN, REFUSED]


def test_a_file_of_keys_with_a_number_in_the_place_of_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.json").write_text('{"format": 1, "keys": [{"id": "a", "key": 5}]}')
    (tmp_path / "keys.json").chmod(0o600)
    monkeypatch.setenv(WHERE, str(tmp_path / "keys.json"))
    monkeypatch.delenv(VALUE, raising=False)
    with pytest.raises(ConfigError, match="holds no keys"):
        held(SystemClock())


def test_at_the_terminal_a_missing_key_is_a_matter_of_settings(shell: Shell, script: str) -> None:
    chat = ("agent", "chat", "rio", ASKED, "--model", script, "--sensitive")
    refused = shell(*chat, "--json")
    assert (refused.code, refused.error()["code"]) == (3, "no_key")
    env = {WHERE: str(shell.place / "mine")}
    assert shell("key", "new", env=env).code == 0
    assert shell(*chat, env=env).out == f"{SAID}\n"
    assert ASKED in shell("agent", "turns", "rio", "--decrypt", env=env).out


# --- in this process ------------------------------------------------------------------------


def key(part: Part) -> str:
    return HOLDFAST.path(part, "rio")


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    monkeypatch.setenv(VALUE, as_text(new_key(SystemClock())))
    return held(SystemClock())


@pytest.fixture
def home(tmp_path: Path, ring: Ring) -> Iterator[Home]:
    with Home.open(str(tmp_path / "home"), create=True, timezone="UTC") as made:
        yield made


SECRET = Question(ASKED, "You are rio.", sensitive=True)


def lines(home: Home, part: Part = "conversation") -> list[Record]:
    path = Path(home.path, key(part))
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rewrite(home: Home, records: list[Record]) -> None:
    """Put other lines in the place of the conversation, as whoever can write files can."""
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    Path(home.path, key("conversation")).write_text(text, encoding="utf-8")


def said_before(home: Home) -> tuple[list[str], int]:
    with Conversation(home, key) as again:
        return [message.text for message in again.recent(10**6)], again.unopened


def test_later_sessions_are_told_what_was_sealed_and_seal_what_they_say(home: Home) -> None:
    with Conversation(home, key) as said:
        turn(said, Scripted([SAID]), SECRET, "s1")
    later = Scripted([SAID, "Plain"])
    with Conversation(home, key) as said:
        turn(said, later, Question("And then?"), "s2")
        turn(said, later, Question("Alone", history=False), "s2")
    assert [message.text for message in later.asked[0].messages] == [ASKED, SAID, "And then?"]
    sealed = ["sealed" in line["meta"] for line in lines(home) if "turn" in line["meta"]]
    assert sealed == [True] * 4 + [False] * 2
    assert told_in(Path(home.path)) == set()


def test_a_text_that_was_moved_or_changed_does_not_open_and_the_rest_does(home: Home) -> None:
    with Conversation(home, key) as said:
        for number in range(3):
            turn(said, Scripted([f"answer {number}"]), Question(f"q{number}", sensitive=True), "s")
    whole = lines(home)
    assert said_before(home) == (["q0", "answer 0", "q1", "answer 1", "q2", "answer 2"], 0)
    moved = [dict(line) for line in whole]
    moved[1]["content"], moved[5]["content"] = whole[5]["content"], whole[1]["content"]
    rewrite(home, moved)
    assert said_before(home) == (["q1", "answer 1"], 2)
    changed = [dict(line) for line in whole]
    text = str(whole[1]["content"])
    changed[1]["content"] = text[:-4] + ("AAA" if text[-4:-1] != "AAA" else "BBB") + "]"
    rewrite(home, changed)
    assert said_before(home) == (["q1", "answer 1", "q2", "answer 2"], 1)


def test_a_text_does_not_open_in_the_log_of_another_agent(home: Home) -> None:
    with Conversation(home, key) as said:
        turn(said, Scripted([SAID]), SECRET, "s1")
    theirs = Path(home.path, HOLDFAST.path("conversation", "clay"))
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(Path(home.path, key("conversation")).read_bytes())
    with Conversation(home, lambda part: HOLDFAST.path(part, "clay")) as other:
        assert other.recent(10**6) == []
        assert other.unopened == 2


def test_a_plain_text_that_looks_sealed_is_what_it_is(home: Home) -> None:
    looks = "[sealed v1 00000000 AAAA]"
    with Conversation(home, key) as said:
        turn(said, Scripted([looks]), Question(looks), "s1")
    assert said_before(home) == ([looks, looks], 0)


def test_what_was_sealed_can_be_replayed_by_whoever_has_the_key(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Conversation(home, key) as said:
        turn(said, Scripted([SAID]), SECRET, "s1")
    model = Replay(recorded(home, home.log(key("conversation"))))
    with Conversation(home, lambda part: HOLDFAST.path(part, "again")) as again:
        assert turn(again, model, SECRET, "s1").text == SAID
    monkeypatch.delenv(VALUE)
    monkeypatch.setenv(WHERE, os.devnull + "/none")
    with pytest.raises(NoKey):
        list(recorded(home, home.log(key("conversation"))))


def test_a_secret_in_a_sealed_text_is_masked_as_in_any_other(home: Home) -> None:
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9"
    with Conversation(home, key) as said:
        turn(said, Scripted([SAID]), Question(f"use {token}", sensitive=True), "s1")
    (asked, _), _ = said_before(home)
    assert asked.startswith("use [SECRET:")


def test_a_line_that_came_to_stand_elsewhere_than_it_was_sealed_for_is_told(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Conversation(home, key) as said:
        write = type(said.log).write

        def late(log: object, decide: object) -> object:
            said.log.append({"ts": 1.0, "role": "system", "content": "of the log itself"})
            return write(log, lambda head: decide(head._replace(seq=head.seq - 1)))  # type: ignore[operator,arg-type]

        monkeypatch.setattr(type(said.log), "write", late)
        with pytest.raises(Indeterminate, match="does not open"):
            turn(said, Scripted([SAID]), SECRET, "s1")
    assert said_before(home)[0] == []
