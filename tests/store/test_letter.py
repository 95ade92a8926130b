"""The names in a mailbox say the same to whoever reads them, and nothing else can be read."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadValue
from holdfast.ids import (
    is_message_id,
    message_id,
    new_message_id,
    place_in_time,
    rank_of_message,
    time_of_message,
)
from holdfast.process import this_process
from holdfast.store.letter import Ticket, Waiting, place_of_ours, ticket_for
from holdfast.store.primitives import CLOCKS_DIFFER, Instant
from holdfast.testing import refused
from holdfast.testing.mailboxes import BAD_IDS, GOOD_IDS

NOW = Instant("a/1", "boot", 1_000.0, 1_700_000_000.0)
IDS = st.text(min_size=1, max_size=60).filter(is_message_id)
TICKETS = st.builds(
    Ticket,
    id=IDS,
    attempt=st.integers(1, 99),
    claimant=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True),
    process=st.none()
    | st.tuples(
        st.from_regex(r"[0-9a-f]{6}", fullmatch=True),
        st.integers(0, 10**7 - 1),
        st.integers(0, 10**11 - 1),
    ),
    fence=st.integers(0, 10**19 - 1),
    boot=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    deadline=st.integers(0, 10**12 - 1),
    machine=st.from_regex(r"[a-z2-7]{5}", fullmatch=True),
    minute=st.integers(0, 16**7 - 1),
)


@given(st.builds(Waiting, id=IDS, attempt=st.integers(1, 99)))
def test_the_name_of_a_waiting_file_reads_as_it_was_written(letter: Waiting) -> None:
    assert Waiting.parse(letter.file) == letter


@given(TICKETS | TICKETS.map(lambda ticket: ticket._replace(machine="", minute=0)))
def test_the_name_of_a_claim_reads_as_it_was_written_and_fits(ticket: Ticket) -> None:
    assert Ticket.parse(str(ticket)) == ticket
    assert len(os.fsencode(str(ticket))) <= 255


def test_the_longest_name_of_a_claim_fits() -> None:
    owner = this_process()._replace(pid=10**7 - 1, started=10**11 - 1)
    claim = ticket_for("x" * 64, 10**19 - 1, owner)(Waiting("é" * 50, 99))
    longest = claim.until(1.0, NOW)._replace(deadline=10**12 - 1)
    assert len(os.fsencode(str(longest))) <= 255, "the kernel takes no longer name"
    assert Ticket.parse(str(longest)) == longest


def test_a_claim_whose_name_could_be_written_otherwise_is_none() -> None:
    good = "x.json~rio@abcdef.7.8~7~1~00000000.5"
    assert Ticket.parse(good) is not None
    for old, new in ((".7.8", ".07.8"), (".7.8", ".7.08"), ("~7~", "~07~"), (".5", ".05")):
        assert Ticket.parse(good.replace(old, new)) is None


def test_a_process_that_has_no_room_in_a_name_is_refused() -> None:
    here = this_process()
    for owner in (here._replace(pid=0), here._replace(pid=10**7), here._replace(started=10**11)):
        with refused(BadValue):
            ticket_for("rio", 1, owner)


@given(st.text(max_size=80))
def test_any_name_at_all_is_read_as_one_thing_or_as_nothing(name: str) -> None:
    for read in (Waiting.parse(name + ".json"), Waiting.parse(name)):
        assert read is None or is_message_id(read.id)
    found = Ticket.parse(name)
    assert found is None or str(found) == name


@pytest.mark.parametrize(
    "name",
    ["x~.json", "x~1.json", "x~0.json", "x~02.json", "x~100.json", "x~2~3.json", "x~-2.json",
     "~2.json", "x~٣.json", ".json", ".x.json", "a\nb.json", "\udcff.json"],
)  # fmt: skip
def test_a_file_that_no_message_can_be_in_is_not_read_as_one(name: str) -> None:
    assert Waiting.parse(name) is None


def test_ids_of_messages_are_checked_in_one_way() -> None:
    for name in GOOD_IDS:
        assert is_message_id(message_id(name))
    assert not any(is_message_id(name) for name in BAD_IDS)


INSTANTS = st.floats(0, 2**38, allow_nan=False)
NOISE = st.integers(0, 2**62 - 1)


@given(INSTANTS, st.integers(0, 2), NOISE)
def test_an_id_of_ours_tells_rank_and_time_and_is_a_uuid_of_version_8(
    now: float, rank: int, noise: int
) -> None:
    from uuid import RFC_4122, UUID  # noqa: PLC0415 - only here

    name = new_message_id(now, rank, noise)
    assert str(UUID(name)) == name
    assert (UUID(name).version, UUID(name).variant) == (8, RFC_4122)
    assert rank_of_message(name) == rank
    assert abs(time_of_message(name) - now) <= 0.001
    assert name.startswith(place_in_time(time_of_message(name)))
    assert Waiting.parse(f"{name}.json") == Waiting(name)


@given(INSTANTS, st.sampled_from([2e-6, 0.001, 1.0, 86_400.0]), st.integers(0, 2), NOISE, NOISE)
def test_ids_of_one_rank_sort_by_time_even_within_a_millisecond(
    now: float, later: float, rank: int, one: int, two: int
) -> None:
    assert new_message_id(now % 2**31, rank, one) < new_message_id(now % 2**31 + later, rank, two)


@given(INSTANTS, st.integers(0, 3), NOISE, st.integers(1, 99))
def test_the_quick_way_to_order_our_files_is_the_right_one(
    now: float, rank: int, noise: int, attempt: int
) -> None:
    letter = Waiting(new_message_id(now, rank, noise), attempt)
    place = place_of_ours(letter.file)
    assert place is not None
    assert place.startswith(letter.place(7.0, 1))
    assert place_of_ours(f"x{letter.file}") is None


def test_a_foreign_message_stands_among_ours_by_its_age() -> None:
    older, newer = (new_message_id(instant, 1, 0) for instant in (1_700_000_000, 1_700_000_002))
    between = Waiting("foreign").place(1_700_000_001, 1)
    assert Waiting(older).place(0, 0) < between < Waiting(newer).place(0, 0)
    assert Waiting("x").place(-5.0, 1) < between


def test_a_deadline_is_never_earlier_than_what_was_asked_for() -> None:
    ticket = ticket_for("rio", 1, None)(Waiting("x")).until(0.0001, NOW)
    assert ticket.end(NOW) is None
    assert ticket.end(NOW.later(0.0011)) == "the deadline passed"


def test_only_the_machine_that_was_restarted_ends_its_claims() -> None:
    ticket = ticket_for("rio", 1, None)(Waiting("x")).until(600.0, NOW)
    after, elsewhere = NOW._replace(boot="next", seconds=1.0), NOW._replace(host="b/1", boot="b")
    assert ticket.end(after) == "the machine was restarted"
    assert ticket.end(elsewhere) is None
    assert ticket.end(elsewhere._replace(seconds=1e9)) is None, "of another boot"
    late = elsewhere.later(600.0 + 2 * CLOCKS_DIFFER)
    assert ticket.end(late) == "the deadline passed"
    container = NOW._replace(host="container/2")
    assert ticket.end(container) is None
    assert ticket.end(container.later(600.1)) == "the deadline passed"


def test_a_claim_of_before_machines_shared_a_store_ends_with_a_restart() -> None:
    old = Ticket.parse("x.json~rio~7~1~00000000.5")
    assert old is not None
    assert old.end(NOW) == "the machine was restarted"


def test_without_a_boot_the_machine_is_what_a_deadline_belongs_to() -> None:
    here = NOW._replace(boot="")
    ticket = ticket_for("rio", 1, None)(Waiting("x")).until(600.0, here)
    assert ticket.end(here.later(599.0)) is None
    assert ticket.end(here.later(600.1)) == "the deadline passed"
    assert ticket.end(here._replace(host="b/1", seconds=1e9)) is None
