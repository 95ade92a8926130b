"""The one shape of every answer."""

import json

from holdfast.errors import Busy
from holdfast.ops.envelope import Change, Rows, Show, error_envelope

AS_OF = "2026-11-15T08:48:46Z"


def test_a_list_has_exactly_the_promised_keys_in_order() -> None:
    assert json.dumps(Rows([{"id": 1}]).as_dict(AS_OF)) == (
        '{"schema": 1, "as_of": "2026-11-15T08:48:46Z", "counts": {}, "rows": [{"id": 1}], '
        '"truncated": false, "next": null}'
    )


def test_a_list_that_was_cut_says_where_it_goes_on() -> None:
    envelope = Rows([], {"all": 9}, truncated=True, next="seq:7").as_dict(AS_OF)
    assert (envelope["counts"], envelope["truncated"], envelope["next"]) == (
        {"all": 9},
        True,
        "seq:7",
    )


def test_one_thing_has_exactly_the_promised_keys() -> None:
    shown = Show({"a": 1}, text="for people only")
    assert shown.as_dict(AS_OF) == {"schema": 1, "as_of": AS_OF, "data": {"a": 1}}


def test_a_change_has_exactly_the_promised_keys_in_order() -> None:
    change = Change("rio", applied=False, detail="already so", data={"n": 1}, dry_run=True)
    assert json.dumps(change.as_dict(AS_OF)) == (
        '{"schema": 1, "target": "rio", "applied": false, "dry_run": true, '
        '"detail": "already so", "data": {"n": 1}}'
    )


def test_an_error_has_exactly_the_promised_keys_in_order() -> None:
    assert json.dumps(error_envelope(Busy("held", hint="wait", path="/p"))) == (
        '{"error": {"code": "busy", "message": "held", "hint": "wait", "retryable": true, '
        '"path": "/p"}}'
    )


def test_answers_succeed_unless_they_say_otherwise() -> None:
    assert [Rows([]).exit_code, Show({}).exit_code, Change("x", True, "").exit_code] == [0, 0, 0]
    assert Rows([], exit_code=1).exit_code == 1


def test_the_envelope_of_one_answer_cannot_change_the_next() -> None:
    Rows([]).as_dict(AS_OF)["counts"]["more"] = 1
    assert Rows([]).as_dict(AS_OF)["counts"] == {}
