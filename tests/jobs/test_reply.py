"""What is made of an answer: the object in it, and the four layers of rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts.job_states import ACTIONS, STATES, Action, State, after_call
from holdfast.errors import UsageError
from holdfast.jobs.verdict import CheckedReply, Rules, Violation, judge
from holdfast.models.marks import between, new_mark
from holdfast.testing import next_state, validate_agent_response

GOOD: dict[str, Any] = {
    "action": "COMPLETED",
    "evidence_files": ["src/app.py"],
    "summary_for_supervisor": "The parser reads empty lines now. All tests pass.",
}
STRICT, TOLERANT = Rules(), Rules(tolerant=True)
LOGIST = Rules(preset="logist")


def text(**changed: Any) -> str:
    return json.dumps(GOOD | changed, ensure_ascii=False)


def without(name: str) -> str:
    return json.dumps({key: value for key, value in GOOD.items() if key != name})


def kinds(judged: CheckedReply) -> list[str]:
    return [each.kind for each in judged.violations]


def refused(
    raw: str, rules: Rules = STRICT, *, kind: str = "schema", says: str = ""
) -> CheckedReply:
    """It must break one rule, be told in the summary, and stop the job."""
    judged = judge(raw, rules)
    assert kinds(judged) == [kind]
    assert judged.action == "STUCK"
    assert says in judged.violations[0].reason
    assert judged.violations[0].reason[:300] in judged.summary
    return judged


# --- the object in the text -----------------------------------------------------------------


@pytest.mark.parametrize("around", ["{}", "\n{}\n", "  {}\r\n"])
@pytest.mark.parametrize("rules", [STRICT, TOLERANT, LOGIST])
def test_one_object_and_nothing_else_is_an_answer(around: str, rules: Rules) -> None:
    judged = judge(around.replace("{}", text()), rules)
    assert judged == CheckedReply(
        "COMPLETED", ["src/app.py"], GOOD["summary_for_supervisor"], [], []
    )


def test_the_fields_may_be_spread_over_lines_and_written_with_escapes() -> None:
    pretty = json.dumps(GOOD | {"summary_for_supervisor": "Größe stimmt. ☃"}, indent=4)
    assert judge(pretty, STRICT).summary == "Größe stimmt. ☃"


IN_PROSE = [
    "Here it is:\n{}",
    "{}\nThat was all.",
    "```json\n{}\n```",
    "```\n{}\n```",
    "~~~json\n{}\n~~~\n",
    "Done.\n\n````JSON\n{}\n````\nBye.",
    "```json\n{}```",
    "```json\n{}",
    "\ufeff{}",
    'He said "no {". I say: {}',
    "A set {a, b} or f{ }, and a brace { and then {} and }",
]


@pytest.mark.parametrize("around", IN_PROSE)
def test_an_object_among_other_text_is_an_answer_only_if_that_is_tolerated(around: str) -> None:
    raw = around.replace("{}", text())
    assert judge(raw, TOLERANT) == judge(text(), STRICT)
    refused(raw, says="more than the JSON object")


@pytest.mark.parametrize("rules", [STRICT, TOLERANT])
@pytest.mark.parametrize("between", ["", "\n", " and then "])
def test_two_objects_are_no_answer(rules: Rules, between: str) -> None:
    refused(text() + between + text(action="STUCK"), rules, says="more than one JSON object")


def test_of_several_fences_the_first_that_is_marked_is_taken() -> None:
    shell = "```sh\npytest\n```\n"
    plain = f"```\n{text(action='RETRY')}\n```\n"
    first, second = (f"```json\n{text(action=each)}\n```\n" for each in ("COMPLETED", "STUCK"))
    judged = judge(f"{shell}{plain}{first}{second}", TOLERANT)
    assert judged.action == "COMPLETED"
    assert [each.kind for each in judged.warnings] == ["schema"]
    assert "first of 2 fences" in judged.warnings[0].reason
    assert judge(f"{shell}{plain}{plain}", TOLERANT).action == "RETRY"
    assert judge(f"{shell}{plain}", TOLERANT).warnings == []


def test_a_chosen_fence_that_is_broken_is_not_replaced_by_the_next() -> None:
    raw = f'```json\n{{"action": \n```\n```json\n{text()}\n```'
    assert judge(raw, TOLERANT).action == "STUCK"


def test_an_object_inside_of_a_broken_one_is_not_what_was_meant() -> None:
    refused(f'{{"was": {text(action="COMPLETED")}, "action": }}', TOLERANT, says="broken")
    refused(f'Well: {{"was": {text()}', TOLERANT, says="broken")


def test_backticks_in_the_summary_do_not_end_a_fence() -> None:
    summary = "Ran ```pytest``` twice."
    raw = f"```json\n{text(summary_for_supervisor=summary)}\n```"
    assert judge(raw, TOLERANT).summary == summary


@pytest.mark.parametrize("rules", [STRICT, TOLERANT])
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("", "nothing was answered"),
        (" \n\t", "nothing was answered"),
        ("\0\0", "nothing was answered"),
        ("\ufeff", "nothing was answered"),
        ("I am done.", ""),
        ("null", "not an object"),
        ('"COMPLETED"', "not an object"),
        (f"[{json.dumps(GOOD)}]", "not an object"),
        (json.dumps(GOOD)[:-1], ""),
        (json.dumps(GOOD).replace('"', "'"), ""),
        ('{"action": "STUCK", ' + json.dumps(GOOD)[1:], "duplicate key 'action'"),
        (json.dumps(GOOD | {"x": 0}).replace("0", "NaN"), ""),
        (json.dumps(GOOD)[:-1] + ',"x":"\udc80"}', ""),
        ('{"x":' * 70 + "0" + "}" * 70, "deeper than 64"),
        ('{"x":' * 200_000, ""),
        ("[" * 200_000, ""),
        ("x" * (9 << 20), "longer than"),
    ],
    ids=range(17),
)
def test_what_is_no_object_is_one_violation(raw: str, says: str, rules: Rules) -> None:
    judged = refused(raw, rules, says=says)
    assert judged.evidence_files == []


@pytest.mark.parametrize("rules", [STRICT, TOLERANT, LOGIST])
def test_the_older_wrapped_form_is_accepted_with_a_warning(rules: Rules) -> None:
    judged = judge(json.dumps({"response": GOOD}), rules)
    assert judged.action == "COMPLETED"
    assert judged.evidence_files == ["src/app.py"]
    assert [each.kind for each in judged.warnings] == ["schema"]


def test_a_wrapped_answer_is_held_to_the_same_rules() -> None:
    inner = GOOD | {"summary_for_supervisor": "x" * 501}
    refused(json.dumps({"response": inner}), kind="summary", says="501 characters")
    assert "schema" in kinds(judge(json.dumps({"request": GOOD}), STRICT))


# --- shape and action -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["action", "evidence_files"])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    refused(without(name), says=f"{name}: missing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", 5),
        ("action", None),
        ("action", ["COMPLETED"]),
        ("evidence_files", "src/app.py"),
        ("evidence_files", None),
        ("evidence_files", {"src/app.py": True}),
        ("evidence_files", ["src/app.py", 7]),
        ("summary_for_supervisor", 5),
        ("summary_for_supervisor", None),
        ("summary_for_supervisor", ["Done."]),
        ("schema_version", "9.0"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(name: str, value: Any) -> None:
    refused(text(**{name: value}), says=name)


def test_all_that_is_wrong_is_told_at_once_layer_by_layer() -> None:
    raw = json.dumps({"action": "DONE", "evidence_files": [1, "../x"]})
    judged = judge(raw, STRICT)
    assert kinds(judged) == ["schema", "action", "evidence_escape", "summary"]
    assert judged.evidence_files == ["../x"]
    assert all(each.reason in judged.summary for each in judged.violations)


@pytest.mark.parametrize("action", ["DONE", "completed", " COMPLETED", "COMPLETED|STUCK", ""])
def test_an_action_that_does_not_exist_is_not_guessed_at(action: str) -> None:
    judged = refused(text(action=action), kind="action", says="COMPLETED, STUCK, RETRY")
    assert repr(action) in judged.summary


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_taken_as_it_is(action: Action) -> None:
    assert judge(text(action=action), STRICT).action == action


def test_an_action_that_this_phase_does_not_accept_is_refused() -> None:
    rules = Rules(accepted=("RETRY", "STUCK"))
    refused(text(), rules, kind="action", says="only RETRY, STUCK is accepted")
    assert judge(text(action="RETRY"), rules).violations == []


def test_unknown_fields_are_refused_only_by_the_preset_that_says_so() -> None:
    raw = text(confidence=0.9)
    assert judge(raw, STRICT).violations == []
    refused(raw, LOGIST, says="'confidence'")
    assert judge(text(job_manifest_url="x"), LOGIST).violations == []


def test_ten_thousand_faults_are_not_told_one_by_one() -> None:
    raw = text(**{f"x{number}": 0 for number in range(10_000)})
    judged = judge(raw, LOGIST)
    assert len(judged.violations) == 21
    assert "9980 more" in judged.violations[-1].reason
    assert len(judged.summary) == 500


# --- evidence -------------------------------------------------------------------------------


def test_evidence_that_is_missing_is_only_warned_of(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    judged = judge(text(evidence_files=["there", "no"]), STRICT, workspace=str(tmp_path))
    assert judged.action == "COMPLETED"
    assert judged.evidence_files == ["there", "no"]
    assert judged.missing == ("no",)
    assert judged.warnings == [
        Violation("evidence_missing", "no: evidence that is not in the workspace")
    ]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "C:\\x", ""])
def test_evidence_by_a_name_that_leads_out_stops_the_job(path: str, tmp_path: Path) -> None:
    refused(text(evidence_files=[path]), kind="evidence_escape", says=path or "''")
    judged = judge(text(evidence_files=[path]), LOGIST, workspace=str(tmp_path))
    assert kinds(judged) == ["evidence_escape"]
    assert judged.evidence_files == [path]


def test_evidence_behind_a_link_that_leads_out_stops_the_job(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    judged = judge(text(evidence_files=["link/passwd"]), STRICT, workspace=str(tmp_path))
    assert (judged.action, kinds(judged)) == ("STUCK", ["evidence_escape"])


# --- summary --------------------------------------------------------------------------------


def test_without_a_summary_a_detailed_review_is_asked_for() -> None:
    judged = refused(without("summary_for_supervisor"), kind="summary", says="missing")
    assert "reviewed in detail" in judged.summary


@pytest.mark.parametrize("summary", ["", " ", "\n\t ", "\u00a0", "\u200b\u200b"])
def test_an_empty_summary_is_none(summary: str) -> None:
    judged = refused(text(summary_for_supervisor=summary), kind="summary", says="empty")
    assert "reviewed in detail" in judged.summary


@pytest.mark.parametrize(("rules", "most"), [(STRICT, 500), (LOGIST, 1000)])
@pytest.mark.parametrize("letter", ["x", "é", "🦀"])
def test_the_length_of_a_summary_is_counted_in_characters(
    rules: Rules, most: int, letter: str
) -> None:
    assert judge(text(summary_for_supervisor=letter * most), rules).violations == []
    long = text(summary_for_supervisor=letter * (most + 1))
    refused(long, rules, kind="summary", says=f"{most + 1} characters")


@pytest.mark.parametrize("sign", ["\0", "\x1b[31m", "\r", "\b", "\x7f", "\x9b"])
def test_control_characters_in_a_summary_break_the_rules(sign: str) -> None:
    raw = json.dumps(GOOD | {"summary_for_supervisor": f"Done{sign} now."})
    judged = refused(raw, kind="summary", says="control character")
    assert sign not in judged.summary


def test_lines_and_tabs_in_a_summary_are_no_control_characters() -> None:
    assert judge(text(summary_for_supervisor="Done:\n\ta file."), STRICT).violations == []


ASKED = "Read the configuration of the service and make the flaky test pass."
WORKER = between("others", new_mark(), "action: RETRY\nsummary: Read it.")
PROMPT = f"# Task\n\n{ASKED}\n\n# What was reported last\n\n{WORKER}"


@pytest.mark.parametrize(
    "summary",
    [ASKED, ASKED.upper(), f"  {ASKED} \n", ASKED[:50], PROMPT[:300], "fix it"],
)
def test_an_echo_of_what_was_asked_is_no_summary(summary: str) -> None:
    judged = judge(text(summary_for_supervisor=summary), STRICT, prompt=(PROMPT, "Fix  it"))
    assert kinds(judged) == ["summary"]
    assert "says again what was asked" in judged.summary


BEANS = "Count the beans in the jar that stands on the shelf of the kitchen"
QUESTION = f"# Task\n\n{BEANS}\n\n# Phase default"


@pytest.mark.parametrize(
    "summary",
    [
        f"{BEANS}.",
        f"Task: {BEANS}",
        f"**Task:** {BEANS}!",
        f"The task is to: “{BEANS}”",
        f"## Task\n{BEANS.upper()}",
        QUESTION,
        f"{QUESTION}.",
        QUESTION.replace("\n\n", " "),
        BEANS[10:],
    ],
)
def test_an_echo_with_nothing_added_but_a_label_or_a_full_stop_is_no_summary(summary: str) -> None:
    for asked in (QUESTION, f"=== system ===\nYou work.\n\n=== user ===\n{QUESTION}"):
        assert kinds(judge(text(summary_for_supervisor=summary), STRICT, prompt=asked)) == [
            "summary"
        ]


REPORT = "The beans were put into the jar, and the jar was put onto the shelf."
FILLED = between("others", new_mark(), f"by: the worker of phase fill\nsummary: {REPORT}")
REPORTED = f"{QUESTION}\n\n# What was reported last\n\n{FILLED}"


@pytest.mark.parametrize(
    "summary",
    [
        f"{BEANS}: there are 312.",
        f"I was asked to {BEANS}, and did.",
        "There are 312 beans in the jar that stands on the shelf of the kitchen",
        "Beans in the jar",
        REPORT,
    ],
)
def test_a_summary_with_words_of_its_own_or_of_somebody_else_is_no_echo(summary: str) -> None:
    file = between("others", new_mark(), f"File a.txt\n\nNotes\n{REPORT}")
    shown = f"{REPORTED}\n\n# Files to look at\n\n{file}"
    for asked in (REPORTED, shown):
        assert judge(text(summary_for_supervisor=summary), STRICT, prompt=asked).violations == []


def test_what_a_program_was_asked_in_an_object_is_echoed_all_the_same() -> None:
    request = json.dumps({"job_id": "j1", "task_description": PROMPT, "context_files": []})
    judged = judge(text(summary_for_supervisor=ASKED), STRICT, prompt=request)
    assert kinds(judged) == ["summary"]
    assert judge(text(), STRICT, prompt=request + "}").violations == []


@pytest.mark.parametrize(
    "summary", ["Made the flaky test pass.", "Read it.", "R", "fix it?", f"Done: {ASKED}"]
)
def test_words_of_the_question_are_no_echo(summary: str) -> None:
    raw = text(summary_for_supervisor=summary)
    assert judge(raw, STRICT, prompt=(PROMPT, "Fix  it", "")).violations == []


@pytest.mark.parametrize(
    ("summary", "warned"),
    [
        ("One. Two! Three?", False),
        ("One. Two. Three, e.g. in app.py or v1.2... or so", False),
        ('He said "no." Then "yes." And that was it', False),
        ("One. Two. Three. Four.", True),
        ("One.\nTwo.\nThree.\nFour", True),
        ("一。二。三。四。", True),
    ],
)
def test_more_than_three_sentences_are_warned_of(summary: str, warned: bool) -> None:
    judged = judge(text(summary_for_supervisor=summary), STRICT)
    assert judged.action == "COMPLETED"
    assert [each.kind for each in judged.warnings] == ["summary"] * warned


# --- whatever comes -------------------------------------------------------------------------

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
near = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from([*ACTIONS, "DONE"]) | junk,
        "evidence_files": st.lists(st.text() | junk, max_size=4) | junk,
        "summary_for_supervisor": st.text() | junk,
        "response": junk,
    },
)
pieces = st.lists(
    st.sampled_from(['{"a":', "}", "{", '"', "\\", "```", "```json\n", "\n", text(), "x"]),
    max_size=12,
).map("".join)


@given(
    raw=st.text() | near.map(json.dumps) | pieces,
    preset=st.sampled_from(["seed", "logist"]),
    tolerant=st.booleans(),
)
@example(raw='{"action":"COMPLETED","evidence_files":[],"summary_for_supervisor":"\\ud800"}',
         preset="seed", tolerant=False)  # fmt: skip
def test_any_text_is_judged_and_only_a_sound_one_is_followed(
    raw: str, preset: Any, tolerant: bool
) -> None:
    judged = judge(raw, Rules(preset, tolerant))
    sound = not judged.violations
    assert sound or judged.action == "STUCK"
    assert sound == validate_agent_response(raw, preset=preset, tolerant=tolerant)
    assert judged.summary.strip()
    json.dumps([*judged.evidence_files, judged.summary]).encode()
    if sound and not tolerant:
        value = json.loads(raw)
        assert judged.action == (value.get("response") or value)["action"]
    if sound and not tolerant:
        assert judge(f"So: {raw}", Rules(preset, tolerant=True)).action == judged.action


# --- for other people's tests ---------------------------------------------------------------


def test_an_answer_can_be_checked_by_one_call(tmp_path: Path) -> None:
    assert validate_agent_response(text())
    assert not validate_agent_response(text(action="DONE"))
    assert not validate_agent_response(f"Well: {text()}")
    assert validate_agent_response(f"Well: {text()}", tolerant=True)
    long = text(summary_for_supervisor="x" * 501)
    assert not validate_agent_response(long)
    assert validate_agent_response(long, preset="logist")
    assert validate_agent_response(text(), str(tmp_path)), "missing evidence is a warning"
    (tmp_path / "src").symlink_to("/etc")
    assert not validate_agent_response(text(), str(tmp_path))


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("state", STATES)
def test_the_state_after_an_answer_is_one_of_the_table_or_refused(
    state: State, action: Action
) -> None:
    if state not in ("PENDING", "REVIEWING", "RUNNING"):
        with pytest.raises(UsageError) as told:
            next_state(state, action)
        assert told.value.hint
        return
    found = {
        next_state(state, action, next_role=role, again=again)
        for role in ("worker", "supervisor", None)
        for again in (True, False)
    }
    assert found == set(after_call("PENDING" if state == "RUNNING" else state, "SUCCESS", action))


def test_what_a_call_that_failed_leads_to() -> None:
    assert next_state("REVIEWING", "RETRY", outcome="ERROR") == "REVIEWING"
    assert next_state("REVIEWING", "RETRY", outcome="ERROR", again=False) == "INTERVENTION_REQUIRED"
    assert next_state("PENDING", "STUCK", outcome="TIMEOUT") == "INTERVENTION_REQUIRED"
    with pytest.raises(UsageError):
        next_state("PENDING", "COMPLETED", outcome="TIMEOUT")
