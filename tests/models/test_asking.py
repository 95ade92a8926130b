"""Trying again, keeping to a rate, asking another one, and not asking at all."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import FakeClock
from holdfast.errors import BadValue, ModelError, NotAuthorised, TimedOut, Unavailable
from holdfast.models.asking import Fallback, Limited, Patience, Retrying
from holdfast.models.protocol import Message, Reply, Request, Usage
from holdfast.models.scripted import NotRecorded, Replay, Scripted

BUSY = {"error": "unavailable", "message": "503"}


def question(text: str = "Well?", **more: Any) -> Request:
    return Request((Message("user", text),), **more)


def retrying(script: list[object], clock: FakeClock, **patience: Any) -> Retrying:
    inner = Scripted(script, clock=clock)
    return Retrying(inner, clock, Random(1), Patience(**patience))


def test_it_asks_again_only_where_that_can_help_and_tells_each_try() -> None:
    clock = FakeClock()
    reply = retrying([BUSY, BUSY, "ok"], clock).ask(question())
    assert reply.text == "ok"
    assert [(one.error, one.message) for one in reply.tries] == [("unavailable", "503")] * 2
    model = Scripted([{"error": "not_authorised"}, "never"], clock=clock)
    with pytest.raises(NotAuthorised) as caught:
        Retrying(model, clock, Random(1)).ask(question())
    assert len(model.asked) == len(caught.value.tries) == 1


def test_it_gives_up_after_so_many_tries_with_all_of_them_in_the_error() -> None:
    model = Scripted([BUSY] * 9, clock=FakeClock())
    with pytest.raises(Unavailable) as caught:
        Retrying(model, FakeClock(), Random(1), Patience(tries=4)).ask(question())
    assert len(model.asked) == len(caught.value.tries) == 4


def test_all_tries_share_the_time_of_the_question() -> None:
    clock = FakeClock()
    script: list[object] = [{"error": "unavailable", "delay": 2}] * 9
    before = clock.boottime()
    with pytest.raises((Unavailable, TimedOut)):
        retrying(script, clock, tries=9, first_pause=1.0).ask(question(timeout=7))
    assert clock.boottime() - before <= 7


def test_it_waits_as_long_as_the_provider_asks_for() -> None:
    class Asking(Scripted):
        def ask(self, request: Request, on_text: Any = None) -> Any:
            try:
                return super().ask(request, on_text)
            except Unavailable as error:
                error.after = 12.0
                raise

    clock = FakeClock()
    model = Retrying(Asking([BUSY, "ok"], clock=clock), clock, Random(1))
    before = clock.boottime()
    assert model.ask(question()).text == "ok"
    assert clock.boottime() - before == 12.0


@given(st.integers(1, 40), st.integers())
def test_pauses_grow_and_stay_in_bounds(failed: int, seed: int) -> None:
    patience = Patience(first_pause=0.5, longest_pause=30.0)
    whole = min(30.0, 0.5 * 2.0 ** (failed - 1))
    pause = patience.pause(failed, Unavailable("x"), Random(seed))
    assert whole / 2 <= pause <= whole


PAID = {"error": "unavailable", "cost_usd": 0.25, "usage": {"input_tokens": 7}}


def test_what_a_failed_call_cost_is_in_the_cost_of_the_answer() -> None:
    answer = {"reply": "ok", "cost_usd": 0.5, "usage": {"input_tokens": 7, "output_tokens": 2}}
    clock = FakeClock()
    reply = Fallback([Scripted([PAID]), Scripted([BUSY]), Scripted([answer])], clock).ask(
        question()
    )
    assert reply.cost_usd == 0.75
    assert reply.usage == Usage(14, 2)
    assert [one.cost_usd for one in reply.tries] == [0.25, None]


def test_what_was_paid_for_is_not_bought_again_and_its_cost_is_in_the_error() -> None:
    model = Scripted([BUSY, PAID, "never"])
    with pytest.raises(Unavailable) as caught:
        Retrying(model, FakeClock(), Random(1)).ask(question())
    assert len(model.asked) == len(caught.value.tries) == 2
    assert isinstance(caught.value.reply, Reply)
    assert caught.value.reply.cost_usd == 0.25


def test_a_failed_try_of_which_nobody_told_the_cost_makes_it_unknown() -> None:
    class Silent(Scripted):
        def ask(self, request: Request, on_text: Any = None) -> Reply:
            try:
                return super().ask(request, on_text)
            except ModelError as error:
                error.reply = Reply("half an ans", self.ref)
                raise

    clock = FakeClock()
    reply = Retrying(Silent([BUSY, "ok"], clock=clock), clock, Random(1)).ask(question())
    assert reply.cost_usd is None


def test_another_model_is_asked_with_the_cost_of_the_first_and_each_try_is_told_once() -> None:
    clock = FakeClock()
    two = [Scripted([BUSY, PAID], ref="scripted:a"), Scripted([BUSY, "ok"], ref="scripted:b")]
    reply = Retrying(Fallback(two, clock), clock, Random(1)).ask(question())
    assert (reply.text, reply.cost_usd) == ("ok", 0.25)
    told = ["scripted:a", "scripted:b", "scripted:a"]
    assert [each.model for each in reply.tries] == told


def test_one_call_is_set_aside_for() -> None:
    model = Scripted([{"reply": "ok", "cost_usd": 0.25}])
    assert Retrying(model, FakeClock(), Random(1)).most_usd(question()) == 0.25


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(BadValue):
        Limited(Scripted(["ok"]), FakeClock(), 0)


def test_no_more_than_so_many_questions_a_minute() -> None:
    clock = FakeClock()
    model = Limited(Scripted(lambda _: "ok", clock=clock), clock, a_minute=3)
    at: list[float] = []
    for _ in range(7):
        model.ask(question())
        at.append(clock.boottime() - 1_000.0)
    assert at == [0, 0, 0, 60, 60, 60, 120]
    clock.sleep(10)
    with pytest.raises(Unavailable, match="3 times a minute"):
        [model.ask(question(timeout=5)) for _ in range(3)]


def test_the_next_model_is_asked_when_one_cannot_answer() -> None:
    clock = FakeClock()
    first = Scripted([BUSY, {"error": "not_authorised"}, "one"], ref="scripted:a", clock=clock)
    other = Scripted(["two", {"error": "declined"}], ref="scripted:b", clock=clock)
    model = Fallback([first, other], clock)
    reply = model.ask(question())
    assert (reply.text, reply.model) == ("two", "scripted:b")
    assert [(one.model, one.error) for one in reply.tries] == [("scripted:a", "unavailable")]
    with pytest.raises(ModelError) as caught:
        model.ask(question())
    assert [one.error for one in caught.value.tries] == ["not_authorised", "declined"]  # type: ignore[attr-defined]
    assert model.ask(question()).text == "one"


def test_a_fallback_has_no_more_time_than_the_question() -> None:
    clock = FakeClock()
    slow = Scripted([{"reply": "x", "delay": 99}], clock=clock)
    other = Scripted(["never asked"], clock=clock)
    with pytest.raises(TimedOut):
        Fallback([slow, other], clock).ask(question(timeout=5))
    assert other.asked == []


def test_a_recording_answers_what_was_asked_and_nothing_else() -> None:
    live, recorded = Scripted(["a", "b", "c"]), []
    for text in ("x", "y", "x"):
        recorded.append((question(text).key, live.ask(question(text))))
    model, pieces = Replay(recorded), list[str]()
    assert [model.ask(question(text), pieces.append).text for text in ("y", "x", "x")] == [
        "b",
        "a",
        "c",
    ]
    assert pieces == ["b", "a", "c"]
    with pytest.raises(NotRecorded, match="no other answer to 'x'"):
        model.ask(question("x"))
    with pytest.raises(NotRecorded, match="no answer to 'z'"):
        model.ask(question("z"))


@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()), max_size=4),
    st.none() | st.integers(1, 99),
)
def test_the_key_tells_questions_apart_and_nothing_else(
    messages: list[tuple[Any, str]], most: int | None
) -> None:
    made = tuple(Message(*each) for each in messages)
    one = Request(made, max_tokens=most)
    assert one.key == Request(made, max_tokens=most, timeout=1, ordinal=4).key
    assert one.key != one._replace(messages=(*made, Message("user", ""))).key
    assert one.key != one._replace(max_tokens=100).key
    assert one.key != one._replace(schema={}).key
