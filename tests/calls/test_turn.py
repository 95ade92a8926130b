"""A turn: on record before and after, whatever happens, and paid for once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bench.material import CountingVfs
from holdfast.agents.chat import Question, composed, turn
from holdfast.calls.call import CallRequest, PendingCall, Result
from holdfast.calls.conversation import Conversation, Tally, recorded
from holdfast.errors import InvalidOutput, ModelError, OverBudget, TimedOut, TooLong, Unavailable
from holdfast.layout import HOLDFAST, Part
from holdfast.models.command import Command
from holdfast.models.protocol import Message, Reply, Request, Try, Usage
from holdfast.models.scripted import Replay, Scripted
from holdfast.store.home import Home
from holdfast.store.primitives import Line

SESSION = "2026-11-15_rio_001"


def key(part: Part) -> str:
    return HOLDFAST.path(part, "rio")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with Home.open(str(tmp_path / "home"), create=True, timezone="UTC") as made:
        yield made


@pytest.fixture
def said(home: Home) -> Iterator[Conversation]:
    with Conversation(home, key) as made:
        yield made


def lines_of(said: Conversation) -> list[dict[str, Any]]:
    return [line.record for line in said.log.read() if isinstance(line, Line)]


def test_a_turn_is_a_question_and_an_answer_on_record(said: Conversation) -> None:
    model = Scripted([{"reply": "Four.", "cost_usd": 0.5}])
    pieces: list[str] = []
    question = Question("What is 2 + 2?", "You are Rio.", max_tokens=9, temperature=0.0)
    reply = turn(said, model, question, SESSION, on_text=pieces.append)
    assert (reply.text, "".join(pieces)) == ("Four.", "Four.")
    system, asked, answered = lines_of(said)
    assert (system["role"], system["content"]) == ("system", "You are Rio.")
    assert (asked["role"], asked["content"]) == ("user", "What is 2 + 2?")
    assert asked["meta"]["parts"] == [system["meta"]["part"]]
    assert asked["meta"]["options"] == {"max_tokens": 9, "temperature": 0.0}
    assert asked["meta"]["reserved_usd"] == 0.5
    assert (answered["role"], answered["content"]) == ("assistant", "Four.")
    assert answered["meta"]["cost_usd"] == 0.5
    assert asked["meta"]["turn"] == answered["meta"]["turn"] == f"{SESSION}/0"
    assert said.tally(SESSION) == Tally(1, usd=0.5, tokens=reply.usage.total or 0)


def test_the_model_is_told_who_it_is_what_it_knows_and_what_was_said(said: Conversation) -> None:
    model = Scripted(["one", "two"])
    question = Question("A?", "persona", "context")
    turn(said, model, question, SESSION)
    turn(said, model, question._replace(prompt="B?"), SESSION)
    system, *rest = model.asked[1].messages
    assert system.text == "persona\n\ncontext"
    assert rest == [
        Message("user", "A?"),
        Message("assistant", "one"),
        Message("user", "B?"),
    ]


def test_what_was_told_before_is_not_written_again(said: Conversation) -> None:
    model = Scripted(lambda _: "ok")
    for number in range(6):
        turn(said, model, Question(f"{number}", "p" * 5000, f"context {number // 3}"), SESSION)
    roles = [record["role"] for record in lines_of(said)]
    assert roles.count("system") == 3
    assert roles.count("user") == roles.count("assistant") == 6


def test_the_question_keeps_to_its_room_and_the_oldest_give_way(said: Conversation) -> None:
    model = Scripted(lambda _: "a" * 400)
    for number in range(9):
        turn(said, model, Question(f"question {number}", room=2_000), SESSION)
    _, request = composed(said, Question("now", "p" * 900, "c" * 900, room=2_000))
    assert len(request.text) <= 2_100
    assert "characters left out" in request.messages[0].text
    texts = [message.text for message in model.asked[-1].messages]
    assert texts[-3] == "question 7"
    assert "question 0" not in texts
    _, bare = composed(said, Question("now", history=False))
    assert [message.text for message in bare.messages] == ["now"]


def test_who_it_is_is_told_whole_whatever_the_question_takes(said: Conversation) -> None:
    persona = "You are Rio.\nNever delete anything."
    question = Question("q" * 5000, persona, "notes " * 500, room=3000)
    parts, request = composed(said, question)
    assert parts == [persona]
    assert [each.text for each in request.messages] == [persona, "q" * 5000]
    with pytest.raises(TooLong, match="persona"):
        turn(said, Scripted(["never"]), Question("q", "p" * 3001, room=3000), SESSION)
    assert lines_of(said) == []


def test_askers_in_turn_number_and_pay_their_questions_as_one(
    home: Home, said: Conversation
) -> None:
    part = "You are Rio."
    with Conversation(home, key) as other:
        for number, who in enumerate((said, said, other, said, other, other, said, said)):
            model = Scripted([{"reply": f"reply {number}", "cost_usd": 0.25}])
            turn(who, model, Question(f"ask {number}?", part), SESSION, limit_usd=2.0)
            told = [each.text for each in model.asked[0].messages[1:-1]]
            assert told[-2:] == [f"ask {number - 1}?", f"reply {number - 1}"][: number * 2]
        turns = [line["meta"]["turn"] for line in lines_of(said) if line["role"] == "user"]
        assert turns == [f"{SESSION}/{number}" for number in range(8)]
        assert sum(line["content"] == part for line in lines_of(said)) == 1
        for who in (said, other):
            assert who.tally(SESSION).usd == 2.0
            with pytest.raises(OverBudget):
                priced = Scripted([{"reply": "no", "cost_usd": 0.01}])
                turn(who, priced, Question("more?"), SESSION, limit_usd=2.0)
            turn(who, Scripted(["free"]), Question("more?"), SESSION, limit_usd=2.0)


def test_another_process_goes_on_with_what_was_said(home: Home, said: Conversation) -> None:
    model = Scripted(lambda request: f"to {request.messages[-1].text}")
    for number in range(200):
        turn(said, model, Question(f"{number}"), SESSION)
    with Conversation(home, key) as other:
        told = other.recent(60)
        assert [message.text for message in told[-4:]] == ["198", "to 198", "199", "to 199"]
        assert sum(len(message.text) for message in told) <= 60
        assert len(other.recent(10**6)) >= 60


@pytest.mark.parametrize(
    ("script", "kind", "cost"),
    [
        ({"error": "unavailable"}, Unavailable, 0.0),
        ({"error": "not_authorised"}, ModelError, 0.0),
        ({"error": "timed_out"}, TimedOut, None),
        ({"reply": "no JSON", "cost_usd": 0.25}, InvalidOutput, 0.25),
        ({"reply": "{}", "finish": "length", "cost_usd": 0.125}, InvalidOutput, 0.125),
    ],
)
def test_a_failure_is_one_line_and_settles_what_was_set_aside(
    said: Conversation, script: dict[str, Any], kind: type[ModelError], cost: float | None
) -> None:
    model = Scripted([script])
    question = Question("Well?", schema={"type": "object"}, max_tokens=3)
    with pytest.raises(kind):
        turn(said, model, question, SESSION, limit_usd=2.0)
    _, ended = lines_of(said)
    assert ended["meta"]["error"] == kind.code or kind is ModelError
    assert ended["meta"]["cost_usd"] == cost
    assert said.waiting() == {}
    tally = said.tally(SESSION)
    assert (tally.turns, tally.failed, tally.usd) == (1, 1, cost or 0.0)
    assert tally.unknown == (cost is None)
    assert said.recent(1000) == []


HUGE = Reply("y\n" * (16 << 20), "m", cost_usd=0.5)
ODD = Reply("Hi \ud83d\ude00 \ud83d.", "m\ud83d", usage=Usage(1 << 70, 3), cost_usd=0.5)


class Given(Scripted):
    """Answers, or fails, with just this."""

    def __init__(self, reply: Reply, *, fails: bool = False) -> None:
        super().__init__([])
        self._given, self._fails = reply, fails

    def ask(self, request: Request, on_text: Any = None) -> Reply:
        if not self._fails:
            return self._given
        error = InvalidOutput(f"odd {self._given.text[:20]}", hint="")
        error.reply = self._given
        error.tries = (Try("m", "invalid_output", self._given.text, 0.1),)
        raise error


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
@pytest.mark.parametrize("reply", [HUGE, ODD], ids=["huge", "odd"])
def test_whatever_comes_is_put_on_record_as_far_as_it_can_be(
    said: Conversation, reply: Reply, fails: bool
) -> None:
    if fails:
        with pytest.raises(InvalidOutput):
            turn(said, Given(reply, fails=True), Question("q"), SESSION)
    else:
        turn(said, Given(reply), Question("q"), SESSION)
    ended = lines_of(said)[-1]
    text = ended["meta"]["reply"] if fails else ended["content"]
    if reply is HUGE:
        assert text.startswith("y\ny\n")
        assert text.endswith(" characters left out]")
    else:
        assert text == "Hi \U0001f600 \ufffd."
        assert "input_tokens" not in ended["meta"]
        assert ended["meta"]["output_tokens"] == 3
    assert ended["meta"]["cost_usd"] == 0.5
    assert said.waiting() == {}


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
def test_what_cannot_be_put_on_record_at_all_still_ends_its_turn(
    said: Conversation, fails: bool
) -> None:
    endless = Reply("Hi.", "m", cost_usd=0.5, seconds=float("nan"))
    with pytest.raises(InvalidOutput):
        turn(said, Given(endless, fails=fails), Question("q"), SESSION)
    assert lines_of(said)[-1]["meta"]["error"] == "invalid_output"
    assert said.waiting() == {}
    assert said.tally(SESSION).usd == 0.5


def test_what_a_program_says_of_its_failure_does_not_make_it_free(said: Conversation) -> None:
    words = ["sh", "-c", "echo 'quota: refused for safety, 429' >&2; exit 1"]
    with pytest.raises(ModelError):
        turn(said, Command(words), Question("q"), SESSION, limit_usd=1.0)
    assert lines_of(said)[-1]["meta"]["cost_usd"] is None
    assert said.tally(SESSION).unknown == 1
    with pytest.raises(TooLong):
        turn(said, Command(["echo", "{prompt}"]), Question("q" * (1 << 18)), SESSION)
    assert lines_of(said)[-1]["meta"]["cost_usd"] == 0.0


def test_an_interrupted_question_is_settled_as_unknown(said: Conversation) -> None:
    def stop(_: Request) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turn(said, Scripted(stop), Question("Well?"), SESSION, limit_usd=1.0)
    assert lines_of(said)[-1]["meta"]["error"] == "interrupted"
    assert said.tally(SESSION).unknown == 1


def test_no_question_is_asked_that_could_cost_more_than_is_left(said: Conversation) -> None:
    model = Scripted([{"reply": "x", "cost_usd": 0.4}] * 9)
    for _ in range(2):
        turn(said, model, Question("q"), SESSION, limit_usd=1.0)
    before = lines_of(said)
    with pytest.raises(OverBudget, match=r"1\.00 USD: 0\.80 is spent, 0\.40 is") as caught:
        turn(said, model, Question("q"), SESSION, limit_usd=1.0)
    assert caught.value.hint
    assert lines_of(said) == before
    assert len(model.asked) == 2
    turn(said, model, Question("q"), SESSION, limit_usd=1.5)


class Unpriced(Scripted):
    """A model of which nobody knows what it costs."""

    def most_usd(self, request: Request) -> float | None:
        return None

    def ask(self, request: Request, on_text: Any = None) -> Reply:
        return super().ask(request, on_text)._replace(cost_usd=None)


def test_an_unknown_cost_is_never_nothing(said: Conversation) -> None:
    model = Unpriced(lambda _: "x")
    turn(said, model, Question("q"), SESSION)
    assert said.tally(SESSION) == Tally(1, unknown=1, tokens=2)
    turn(said, model, Question("q"), SESSION, limit_usd=1.0)
    assert said.tally(SESSION).assumed_usd == 1.0
    with pytest.raises(OverBudget, match=r"1\.00 counts for 2 of unknown cost"):
        turn(said, model, Question("q"), SESSION, limit_usd=1.0)


def test_a_call_that_costs_more_than_was_set_aside_is_listed(
    home: Home, said: Conversation
) -> None:
    class Dearer(Scripted):
        def most_usd(self, request: Request) -> float | None:
            return 0.25

    turn(said, Dearer([{"reply": "x", "cost_usd": 1.0}]), Question("q"), SESSION, limit_usd=0.5)
    assert said.tally(SESSION).over_usd == 0.75
    said.close()
    shown = json.loads(Path(home.path, "state/rio/turns.json").read_text(encoding="utf-8"))
    assert shown["sessions"][SESSION]["over_usd"] == 0.75


def test_a_recorded_conversation_can_be_replayed(home: Home, said: Conversation) -> None:
    live = Scripted(lambda request: f"answer {len(request.messages)}")
    questions = [Question(f"q{n}", "persona") for n in range(5)]
    answers = [turn(said, live, each, SESSION).text for each in questions]
    model = Replay(recorded(home, said.log), ref="replay:rio")
    with Conversation(home, lambda part: HOLDFAST.path(part, "again")) as again:
        assert [turn(again, model, each, SESSION).text for each in questions] == answers


def test_a_turn_takes_two_syncs_and_the_same_reads_however_long_it_has_gone_on(
    tmp_path: Path,
) -> None:
    vfs = CountingVfs()
    model = Scripted(lambda _: "r" * 500)
    with (
        Home.open(str(tmp_path / "x"), create=True, vfs=vfs) as home,
        Conversation(home, key) as said,
    ):
        costs: list[int] = []
        sizes: list[int] = []
        file = tmp_path / "x" / key("conversation")
        for number in range(1, 401):
            before, size = vfs.syncs, file.stat().st_size if file.exists() else 0
            turn(said, model, Question(f"question {number:04}", "p" * 3_000), SESSION)
            costs.append(vfs.syncs - before)
            sizes.append(file.stat().st_size - size)
        assert set(costs[1:]) == {2}
        assert max(sizes[2:]) < 500 + 1_100
        state = (tmp_path / "x/state/rio/.turns.json.view").stat().st_size
        assert state < 4_000


class Money(RuleBasedStateMachine):
    """Two handles ask and answer in any order; the limit holds at every moment."""

    LIMIT = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.home = Home.open(self.folder.name + "/home", create=True)
        self.said = [Conversation(self.home, key) for _ in range(2)]
        self.open: list[PendingCall] = []
        self.over = 0.0

    @rule(who=st.integers(0, 1), most=st.none() | st.integers(0, 60))
    def ask(self, who: int, most: int | None) -> None:
        money = None if most is None else most / 100
        asked = CallRequest(SESSION, "q", "m", Request(()), (), money, self.LIMIT)
        try:
            self.open.append(self.said[who].begin(asked))
        except OverBudget:
            left = self.said[who].tally(SESSION).bound("", self.LIMIT).left
            assert left < 0.0001 or (money is not None and money > left - 0.0001)

    @rule(who=st.integers(0, 1), which=st.integers(0), cost=st.none() | st.integers(0, 80))
    def answer(self, who: int, which: int, cost: int | None) -> None:
        if self.open:
            begun = self.open.pop(which % len(self.open))
            money = None if cost is None else cost / 100
            if money is not None and begun.reserved_usd is not None:
                self.over += max(0.0, money - begun.reserved_usd)
            self.said[who].end(begun, Result("ok", Reply("a", "m", cost_usd=money)))

    @rule(who=st.integers(0, 1), which=st.integers(0))
    def fail(self, who: int, which: int) -> None:
        if self.open:
            begun = self.open.pop(which % len(self.open))
            self.said[who].end(begun, Result("timeout", error=TimedOut("late")))

    @invariant()
    def never_more_than_the_limit_but_for_what_is_listed(self) -> None:
        tally = self.said[0].tally(SESSION)
        assert tally.bound("", self.LIMIT + self.over).left >= -1e-6
        assert abs(tally.over_usd - self.over) < 1e-6
        assert self.said[1].tally(SESSION) == tally

    def teardown(self) -> None:
        for each in self.said:
            each.close()
        self.home.close()
        self.folder.cleanup()


TestMoney = Money.TestCase
TestMoney.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


ASKER = """
import sys
from holdfast.calls.conversation import Conversation
from holdfast.agents.chat import Question, turn
from holdfast.errors import OverBudget
from holdfast.layout import HOLDFAST
from holdfast.models.scripted import Scripted
from holdfast.store.home import Home
model = Scripted(lambda _: {"reply": "x", "cost_usd": 0.01, "delay": 0.002})
model.most_usd = lambda request: 0.01
with Home.open(sys.argv[1]) as home, Conversation(home, lambda p: HOLDFAST.path(p, "rio")) as said:
    print("ready", flush=True)
    try:
        while True:
            turn(said, model, Question("q"), sys.argv[2], limit_usd=1.0)
            print("done", flush=True)
    except OverBudget:
        print("enough", flush=True)
"""


def test_sixteen_askers_and_kills_never_spend_more_than_there_is(home: Home) -> None:
    words = [sys.executable, "-c", ASKER, home.path, SESSION]
    askers = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(16)]
    for asker in askers[:12]:
        assert asker.stdout is not None
        asker.stdout.readline()
        asker.stdout.readline()
        asker.send_signal(signal.SIGKILL)
    said = [asker.communicate(timeout=60)[0] for asker in askers]
    assert all(text.endswith(b"enough\n") for text in said[12:])
    with Conversation(home, key) as conversation:
        tally, waiting = conversation.tally(SESSION), conversation.waiting()
        assert tally.bound("", 1.0).left >= -1e-9
        assert tally.bound("", 1.0).left < 0.011
        assert len(waiting) <= 12
        assert tally.turns == round(tally.usd / 0.01) + len(waiting)
        assert conversation.log.verify().problems == []
        done = sum(text.count(b"done") for text in said)
        assert done <= round(tally.usd / 0.01)


def test_threads_with_a_handle_each_share_one_limit(home: Home) -> None:
    asked: list[int] = []

    def work() -> None:
        model = Scripted(lambda _: {"reply": "x", "cost_usd": 0.02})
        model.most_usd = lambda request: 0.02  # type: ignore[method-assign]
        with Conversation(home, key) as mine:
            try:
                while True:
                    turn(mine, model, Question("q"), SESSION, limit_usd=0.5)
                    asked.append(1)
            except OverBudget:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 25


@given(st.lists(st.binary(max_size=20), max_size=4))
def test_foreign_lines_in_the_conversation_stop_nobody(junk: list[bytes]) -> None:
    with (
        TemporaryDirectory() as folder,
        Home.open(folder + "/h", create=True) as home,
        Conversation(home, key) as said,
    ):
        turn(said, Scripted(["one"]), Question("q"), SESSION)
        with open(Path(home.path, key("conversation")), "ab") as file:
            file.write(b"\n".join([*junk, b'{"role":"user","meta":7}', b'{"meta":{"turn":1}}\n']))
        turn(said, Scripted(["two"]), Question("q"), SESSION)
        assert said.tally(SESSION).turns == 2


def test_it_takes_no_longer_than_it_may(home: Home, said: Conversation) -> None:
    model = Scripted(lambda _: "ok")
    for number in range(200):
        turn(said, model, Question(f"{number}"), SESSION)
    began = time.process_time()
    for number in range(200):
        turn(said, model, Question(f"{number}"), SESSION)
    assert (time.process_time() - began) / 200 < 0.003  # the bench has the real bar
