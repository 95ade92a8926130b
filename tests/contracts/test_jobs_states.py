"""The table of states."""

from __future__ import annotations

import pytest

from holdfast.contracts.job_states import (
    ACTIONS,
    CAUSES,
    FINAL,
    STATES,
    TRANSITIONS,
    Action,
    Cause,
    Outcome,
    State,
    after,
    after_call,
    allowed,
    claimable_from,
)


def test_every_cause_has_its_row_and_every_state_can_be_reached() -> None:
    assert tuple(TRANSITIONS) == CAUSES
    reached = {"DRAFT"} | {state for _, then in TRANSITIONS.values() for state in then}
    assert reached == set(STATES)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_nothing_happens_to_a_job_that_is_over(state: State) -> None:
    assert allowed(state) == ()
    assert [after(state, cause) for cause in CAUSES] == [()] * len(CAUSES)


@pytest.mark.parametrize(
    ("state", "causes"),
    [
        ("DRAFT", {"activate", "cancel"}),
        ("PENDING", {"claim", "over_cost", "over_time", "rewind", "cancel"}),
        (
            "REVIEWING",
            {"claim", "over_cost", "over_time", "approve", "reject", "rewind", "cancel"},
        ),
        (
            "RUNNING",
            {*ACTIONS, "api_error", "lost", "over_cost", "over_time", "cancel"},
        ),
        ("INTERVENTION_REQUIRED", {"continue", "halt", "rewind", "cancel"}),
        ("HALTED_COST", {"resume", "cancel"}),
        ("HALTED_TIME", {"resume", "cancel"}),
    ],
)
def test_every_state_says_what_may_happen_to_it(state: State, causes: set[Cause]) -> None:
    assert set(allowed(state)) == causes


@pytest.mark.parametrize(
    ("claimed", "outcome", "action", "then"),
    [
        ("PENDING", "SUCCESS", "COMPLETED", {"PENDING", "REVIEWING", "SUCCESS"}),
        ("REVIEWING", "SUCCESS", "COMPLETED", {"PENDING", "REVIEWING", "SUCCESS"}),
        ("PENDING", "SUCCESS", "RETRY", {"PENDING", "INTERVENTION_REQUIRED"}),
        ("REVIEWING", "SUCCESS", "RETRY", {"PENDING", "INTERVENTION_REQUIRED"}),
        ("REVIEWING", "ERROR", "RETRY", {"REVIEWING", "INTERVENTION_REQUIRED"}),
        ("PENDING", "SUCCESS", "STUCK", {"INTERVENTION_REQUIRED"}),
        ("PENDING", "TIMEOUT", "STUCK", {"INTERVENTION_REQUIRED"}),
        ("PENDING", "TIMEOUT", "RETRY", set()),
        ("PENDING", "ERROR", "COMPLETED", set()),
        ("DRAFT", "SUCCESS", "COMPLETED", set()),
        ("RUNNING", "SUCCESS", "COMPLETED", set()),
        ("SUCCESS", "SUCCESS", "RETRY", set()),
    ],
)
def test_a_call_leads_where_its_answer_says(
    claimed: State, outcome: Outcome, action: Action, then: set[State]
) -> None:
    assert set(after_call(claimed, outcome, action)) == then


def test_between_two_calls_only_a_person_moves_a_job() -> None:
    assert claimable_from({"PENDING"}) == {"PENDING"}
    assert claimable_from({"INTERVENTION_REQUIRED"}) == {"PENDING"}
    assert claimable_from({"HALTED_COST"}) == {"PENDING", "REVIEWING"}
    assert claimable_from({"SUCCESS"}) == set()
    assert claimable_from({"CANCELED"}) == set()


def test_what_is_told_is_followed_in_its_order() -> None:
    assert claimable_from({"PENDING"}, ["rewind"]) == {"PENDING", "REVIEWING"}
    assert claimable_from({"INTERVENTION_REQUIRED"}, []) == set()
    assert claimable_from({"PENDING"}, ["over_cost", "resume"]) == {"PENDING", "REVIEWING"}
    assert claimable_from({"PENDING"}, ["resume", "over_cost"]) == set()
