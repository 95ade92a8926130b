"""Money: nobody spends what somebody else was promised, and nothing unknown counts as nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.agent import Agent, End, Start
from holdfast.clock import FakeClock
from holdfast.codec import Record
from holdfast.errors import ConfigError, OverBudget
from holdfast.ids import SessionId
from holdfast.process import this_process
from holdfast.settings import Budget
from holdfast.spend.book import SHAPE, Spend, Tally, settled, total
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.testing import Turner

LIMITS = """
[budget]
session_usd = 2.0
agent_day_usd = 3.0
fleet_day_usd = 5

[agents.clay]
day_usd = 1.0
session_usd = 0.4
"""
GONE = this_process()._replace(boot="another-boot")


@pytest.fixture
def clock() -> Turner:
    return Turner(1_795_000_000.0)


@pytest.fixture
def home(tmp_path: Path, clock: Turner) -> Iterator[Home]:
    with Home.open(str(tmp_path / "home"), create=True, timezone="UTC", clock=clock) as home:
        yield home


@pytest.fixture
def limited(home: Home) -> Home:
    limit(home, LIMITS)
    return home


def limit(home: Home, text: str) -> None:
    home.document("holdfast.toml").update(lambda old: (old or b"") + text.encode())


def ran(home: Home, agent: str, cost: float | None = None, asked: float | None = None) -> str:
    """One session from start to end."""
    with Agent(home, agent) as one:
        opened = one.start(Start("research", max_cost=asked), owner=this_process())
        fields = {} if cost is None else {"cost_usd": cost, "tokens_used": 100}
        one.end("", opened.fence, End("completed", fields=fields))
    return opened.id


def spent(home: Home, agent: str = "rio") -> Tally:
    with Spend(home) as book:
        return book.agents(home.day()).get(agent, Tally())


def test_limits_hold_for_all_unless_an_agent_has_its_own(limited: Home) -> None:
    assert limited.current_settings().budget("rio") == Budget(2.0, 3.0, 5.0)
    assert limited.current_settings().budget("clay") == Budget(0.4, 1.0, 5.0)


@pytest.mark.parametrize("value", ['"2"', "-1", "nan", "inf", "true", "[]"])
def test_a_limit_that_is_no_money_is_told(home: Home, value: str) -> None:
    limit(home, f"\n[budget]\nsession_usd = {value}\n")
    with pytest.raises(ConfigError, match="session_usd"):
        home.current_settings().budget("rio")


def test_without_limits_nothing_is_reserved_and_costs_are_known_all_the_same(home: Home) -> None:
    ran(home, "rio", cost=0.25)
    assert spent(home) == Tally(usd=0.25, tokens=100, sessions=1)


def test_a_session_gets_what_it_asks_for_and_settles_for_what_it_cost(limited: Home) -> None:
    with Agent(limited, "rio") as rio:
        opened = rio.start(Start("research", max_cost=1.5))
        assert opened.budget == 1.5
        assert spent(limited).reserved_usd == 1.5
        rio.end("", opened.fence, End("completed", fields={"cost_usd": 0.5}))
    assert spent(limited) == Tally(usd=0.5, sessions=1)


def test_a_session_that_asks_for_nothing_gets_what_a_session_may_have(limited: Home) -> None:
    with Agent(limited, "clay") as clay:
        assert clay.start(Start("research")).budget == 0.4


def test_with_a_limit_of_the_day_alone_a_session_gets_all_that_is_left(home: Home) -> None:
    limit(home, "\n[budget]\nagent_day_usd = 3.0\n")
    ran(home, "rio", cost=1.0)
    with Agent(home, "rio") as rio:
        assert rio.start(Start("research")).budget == 2.0
        with pytest.raises(OverBudget, match=r"2\.00 is reserved"):
            rio.start(Start("extract", role="extract"))


def test_an_unknown_cost_counts_as_what_was_reserved_until_somebody_tells(limited: Home) -> None:
    session = ran(limited, "rio", asked=2.0)
    assert spent(limited) == Tally(unknown=1, assumed_usd=2.0, sessions=1)
    with Agent(limited, "rio") as rio:
        with pytest.raises(OverBudget, match=r"2\.00 counts for 1 of unknown cost") as raised:
            rio.start(Start("research", max_cost=1.5))
        assert "session set" in raised.value.hint
        rio.set(session, {"cost_usd": 0.25})
        assert spent(limited) == Tally(usd=0.25, sessions=1)
        rio.set(session, {"cost_usd": 0.75})
        assert spent(limited) == Tally(usd=0.75, sessions=1)
        assert rio.start(Start("research", max_cost=1.5)).budget == 1.5


def test_a_refusal_begins_nothing(limited: Home) -> None:
    with Agent(limited, "rio") as rio:
        with pytest.raises(OverBudget, match=r"a session of rio may spend 2\.00 USD"):
            rio.start(Start("research", max_cost=2.5))
        assert list(rio.lines()) == []
        assert rio.holder() is None
        assert rio.start(Start("research", max_cost=2.0)).id.endswith("_001")


def test_the_fleet_shares_one_purse(limited: Home) -> None:
    for name in ("ada", "bob"):
        with Agent(limited, name) as one:
            one.start(Start("research", max_cost=2.0), owner=this_process())
    with Agent(limited, "rio") as rio:
        with pytest.raises(OverBudget, match=r"the fleet today may spend 5\.00"):
            rio.start(Start("research", max_cost=1.5))
        assert rio.start(Start("research", max_cost=1.0)).budget == 1.0


def test_the_next_day_has_its_own_money(limited: Home, clock: FakeClock) -> None:
    ran(limited, "rio", cost=2.0)
    ran(limited, "rio", cost=1.0, asked=1.0)
    with Agent(limited, "rio") as rio, pytest.raises(OverBudget, match="rio today"):
        rio.start(Start("research"))
    clock.advance(86_400)
    assert ran(limited, "rio", cost=1.5)


def test_a_crashed_session_counts_as_unknown_whatever_it_had_told(limited: Home) -> None:
    with Agent(limited, "rio") as rio:
        opened = rio.start(Start("research", max_cost=1.0), owner=GONE)
        rio.set(opened.id, {"cost_usd": 0.3})
        assert rio.bury() == [opened.id]
    assert spent(limited) == Tally(unknown=1, assumed_usd=1.0, sessions=1)


def test_money_of_one_who_died_before_his_session_began_comes_back(limited: Home) -> None:
    with Spend(limited) as book:
        lost = SessionId(limited.day(), "ada", 1)
        book.reserve(lost, 2.0, Budget(), GONE)
        kept = SessionId(limited.day(), "bob", 1)
        book.reserve(kept, 2.0, Budget(), this_process())
    with Agent(limited, "rio") as rio:
        rio.start(Start("research", max_cost=2.0))
    with Spend(limited) as book:
        assert [held.session.agent for held in book.open()] == ["bob", "rio"]


def test_money_of_a_session_without_a_process_stays_reserved(limited: Home) -> None:
    with Agent(limited, "ada") as ada:
        ada.start(Start("research", max_cost=2.0))
    with Spend(limited) as book:  # as if the process that said `session start` had ended
        (held,) = book.open()
        book.reserve(held.session, 2.0, Budget(), GONE)
    ran(limited, "rio", cost=0.1, asked=1.0)
    assert spent(limited, "ada").reserved_usd == 2.0


def test_what_a_dead_process_left_unsettled_is_settled_by_the_next(limited: Home) -> None:
    with Agent(limited, "rio") as rio:
        opened = rio.start(Start("research", max_cost=2.0))
        rio.account.settle = lambda acked=None: None  # it dies before it settles
        rio.end("", opened.fence, End("completed", fields={"cost_usd": 0.5}))
    assert spent(limited).reserved_usd == 2.0
    with Agent(limited, "rio") as rio:
        rio.start(Start("research", max_cost=1.0))
    assert spent(limited) == Tally(usd=0.5, reserved_usd=1.0, sessions=1)


def test_what_was_spent_by_one_who_died_before_he_settled_is_not_granted_again(
    limited: Home,
) -> None:
    with Agent(limited, "rio") as rio:
        opened = rio.start(Start("research", max_cost=2.0))
        rio.account.settle = lambda acked=None: None  # it dies before it settles
        rio.end("", opened.fence, End("completed", fields={"cost_usd": 2.0}))
    with Spend(limited) as book:
        (held,) = book.open()
        book.reserve(held.session, 2.0, Budget(), GONE)
    with Agent(limited, "rio") as rio, pytest.raises(OverBudget):
        rio.start(Start("research", max_cost=2.0))
    assert spent(limited) == Tally(usd=2.0, sessions=1)


def test_of_two_who_tell_a_cost_at_once_the_second_corrects_the_first(
    limited: Home, clock: Turner, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ran(limited, "rio", asked=2.0)
    clock.waits = True  # else ten seconds of patience are over at once

    def tell() -> None:
        # By the clock of the system, which really waits for a lock.
        with Home.open(limited.path) as home, Agent(home, "rio") as other:
            other.set(session, {"cost_usd": 0.5})

    second = Thread(target=tell)
    with Agent(limited, "rio") as rio:
        look = rio._cost_before

        def interrupted(session: str) -> Record:
            found = look(session)
            second.start()
            second.join(0.5)  # it has to wait for us
            return found

        monkeypatch.setattr(rio, "_cost_before", interrupted)
        rio.set(session, {"cost_usd": 1.5})
    second.join()
    assert spent(limited) == Tally(usd=0.5, sessions=1)


@pytest.mark.parametrize("claim", [-1, "1.0", True, 1e300, None, [1]])
def test_a_claim_that_is_no_money_is_unknown(claim: object) -> None:
    end = {"event": "session_end", "session_id": "2026-11-15_rio_001", "cost_usd": claim}
    told = settled(Line(1, "0" * 64, end, "s", 0, 0))
    assert told is not None
    state = SHAPE.fold(SHAPE.initial(), Line(1, "0" * 64, told, "s", 0, 0))
    assert state["days"]["2026-11-15"]["rio"]["unknown"] == 1
    assert state["days"]["2026-11-15"]["rio"]["usd"] == 0.0


class Acts:
    amounts = st.one_of(st.none(), st.integers(1, 40).map(lambda dimes: dimes / 10))
    agents = st.sampled_from(["ada", "bob", "cleo"])
    every = st.lists(st.tuples(agents, amounts, amounts, st.booleans()), max_size=25)


@settings(max_examples=40, deadline=None)
@given(Acts.every)
def test_what_is_granted_never_exceeds_any_limit(
    tmp_path_factory: pytest.TempPathFactory,
    acts: list[tuple[str, float | None, float | None, bool]],
) -> None:
    budget = Budget(session=2.0, agent_day=4.0, fleet_day=7.0)
    place = str(tmp_path_factory.mktemp("home") / "h")
    with Home.open(place, create=True, timezone="UTC", clock=FakeClock(1_795_000_000.0)) as home:
        day, me = home.day(), this_process()
        for number, (agent, asked, cost, ends) in enumerate(acts, 1):
            with Spend(home) as book:
                session = SessionId(day, agent, number)
                before = book.agents(day)
                try:
                    granted = book.reserve(session, asked, budget, me)
                except OverBudget:
                    assert book.agents(day) == before
                    continue
                assert granted is not None
                assert granted <= 2.0
                tallies = book.agents(day)
                assert all(each.committed <= 4.0 + 1e-6 for each in tallies.values())
                assert total(tallies.values()).committed <= 7.0 + 1e-6
                if ends:
                    told = min(cost, granted) if cost is not None else None
                    end = {"event": "settle", "session_id": str(session), "usd": told}
                    home.log("spend").append(end)
        with Spend(home) as book:
            assert book.agents(day) == _counted(home, day)


def _counted(home: Home, day: str) -> dict[str, Tally]:
    """The same, folded again from the first line."""
    (Path(home.path) / "state" / ".spend.json.view").unlink(missing_ok=True)
    with Spend(home) as book:
        return book.agents(day)


@pytest.mark.parametrize(
    "text",
    ["[budget]\nagent_day = 1.0\n", "budget.per_day = 1\n", "[agents.rio]\nday_us = 1.0\n"],
)
def test_a_limit_that_is_misspelt_is_an_error_and_not_no_limit(home: Home, text: str) -> None:
    limit(home, text)
    with pytest.raises(ConfigError, match="has no") as told:
        home.current_settings().budget("rio")
    assert "day_usd" in str(told.value.hint)


def test_other_settings_of_an_agent_are_no_misspelt_limits(home: Home) -> None:
    others = 'model = "scripted:echo"\ncolour = "red"\nmeasure.sources_archived = "*.md"\n'
    limit(home, f"[agents.rio]\n{others}")
    assert home.current_settings().budget("rio") == Budget()
