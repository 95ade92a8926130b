"""What agents answer, from the raw text to the state that follows and the audit."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import termios
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import userfile
from holdfast.clock import instant_of
from holdfast.testing import Turner
from tests.jobs.desk import AGAIN, DONE, Desk

PROMPT = "Count the apples in the basket and write the number down"


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in DONE.items() if name not in names} | more


BROKEN: dict[str, tuple[object, list[str], str]] = {
    "an action that does not exist": (without(action="FINISHED"), ["action"], "'FINISHED'"),
    "an action in small letters": (without(action="completed"), ["action"], "'completed'"),
    "no action": (without("action"), ["schema"], "action"),
    "an action of another type": (without(action=1), ["schema"], "action"),
    "no evidence": (without("evidence_files"), ["schema"], "evidence_files"),
    "evidence of another type": (without(evidence_files="a.md"), ["schema"], "evidence_files"),
    "evidence that is no path": (without(evidence_files=[1]), ["schema"], "evidence_files"),
    "no summary": (without("summary_for_supervisor"), ["summary"], "missing"),
    "an empty summary": (without(summary_for_supervisor=" \n"), ["summary"], "empty"),
    "a summary too long": (without(summary_for_supervisor="x" * 501), ["summary"], "501"),
    "control characters": (without(summary_for_supervisor="a\x1b[2J"), ["summary"], "control"),
    "an echo": (without(summary_for_supervisor=PROMPT), ["summary"], "asked for"),
    "words": ("I am done!", ["schema"], "not one JSON object"),
    "nothing": (" \n", ["schema"], "nothing was answered"),
    "an array": ([DONE], ["schema"], "object"),
    "half an object": (json.dumps(DONE)[:-1], ["schema"], "not one JSON object"),
    "two objects": (json.dumps(DONE) * 2, ["schema"], "more than one"),
    "text around it": (f"Here it is: {json.dumps(DONE)}", ["schema"], "more than the JSON object"),
    "a fence": (f"```json\n{json.dumps(DONE)}\n```", ["schema"], "more than the JSON object"),
    "the same name twice": (
        '{"action": "STUCK", ' + json.dumps(DONE)[1:],
        ["schema"],
        "not one JSON object",
    ),
    "a path out of the workspace": (
        without(evidence_files=["../x"]),
        ["evidence_escape"],
        "../x",
    ),
    "an absolute path": (without(evidence_files=["/etc/passwd"]), ["evidence_escape"], "/etc/p"),
    "three at once": (
        {"action": "OK", "evidence_files": ["../x"], "summary_for_supervisor": ""},
        ["action", "evidence_escape", "summary"],
        "OK",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_answer_asks_a_person_and_is_one_entry_of_the_audit_for_each_rule(
    desk: Desk, what: str
) -> None:
    reply, kinds, says = BROKEN[what]
    desk.ok("job", "new", "--prompt", PROMPT, "--id", "demo", "--worker", "scripted:echo")
    ran = desk.step(reply)
    assert (ran.code, ran.json()["data"]["status"]) == (1, "INTERVENTION_REQUIRED")
    (call,) = desk.calls()
    response = call["response"]
    assert (response["action"], response["new_status"]) == ("STUCK", "INTERVENTION_REQUIRED")
    raw = reply if isinstance(reply, str) else json.dumps(reply)
    assert response["raw_response"] == raw
    assert [each["kind"] for each in response["violations"]] == kinds
    assert says in ran.json()["data"]["why"]
    assert desk.audit() == [(kind, 0) for kind in kinds]
    assert desk("job", "replay", "demo").code == 0


@pytest.mark.parametrize(
    ("preset", "length", "fine"),
    [("seed", 500, True), ("seed", 501, False), ("logist", 1000, True), ("logist", 1001, False)],
)
def test_how_long_a_summary_may_be_is_told_by_the_spec(
    desk: Desk, preset: str, length: int, fine: bool
) -> None:
    told = desk.spec(prompt="P", models={"worker": "scripted:echo"}, reply={"preset": preset})
    desk.ok("job", "new", told, "--id", "demo")
    desk.step(without(summary_for_supervisor="ü" * length))
    assert desk.status() == ("SUCCESS" if fine else "INTERVENTION_REQUIRED")


@pytest.mark.parametrize(("preset", "fine"), [("seed", True), ("logist", False)])
def test_a_field_that_nobody_knows_is_a_violation_where_the_spec_says_so(
    desk: Desk, preset: str, fine: bool
) -> None:
    told = desk.spec(prompt="P", models={"worker": "scripted:echo"}, reply={"preset": preset})
    desk.ok("job", "new", told, "--id", "demo")
    desk.step(without(mood="fine"))
    assert desk.status() == ("SUCCESS" if fine else "INTERVENTION_REQUIRED")
    assert desk.audit() == ([] if fine else [("schema", 0)])


def test_a_tolerant_job_takes_a_fence_and_text_and_still_not_two_objects(desk: Desk) -> None:
    whole = json.dumps(DONE)
    other = json.dumps({**DONE, "summary_for_supervisor": "The other one."})
    fences = f"```json\n{whole}\n```\nor\n```json\n{other}\n```"
    for id, text in (
        ("fenced", f"Sure:\n```json\n{whole}\n```\n"),
        ("in-prose", f"Sure: {whole} Bye."),
        ("several", fences),
    ):
        desk.new("--worker", "scripted:echo", "--tolerant", id=id)
        assert desk.step(text, id).code == 0
        (call,) = desk.calls(id)
        assert call["response"]["summary_for_supervisor"] == "It is done."
        assert desk.audit(id) == []
    desk.new("--worker", "scripted:echo", "--tolerant", id="two")
    desk.step(f"{whole}\n{whole}", "two")
    assert desk.status("two") == "INTERVENTION_REQUIRED"


def test_an_answer_in_a_wrapper_is_taken(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    assert desk.step({"response": DONE}).code == 0
    assert desk.status() == "SUCCESS"
    assert desk.audit() == []


def test_a_long_winded_summary_is_a_warning_and_no_violation(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    desk.step(without(summary_for_supervisor="One. Two. Three. Four."))
    (call,) = desk.calls()
    assert [each["kind"] for each in call["response"]["warnings"]] == ["summary"]
    assert (desk.status(), desk.audit()) == ("SUCCESS", [])


def test_evidence_that_is_not_there_is_a_warning_and_told_in_the_audit(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    assert desk.step(without(evidence_files=["gone.md"])).code == 0
    (call,) = desk.calls()
    warned = [each for each in call["response"]["warnings"] if each["kind"] == "evidence_missing"]
    assert len(warned) == 1 and "gone.md" in warned[0]["reason"]
    assert (desk.status(), desk.audit()) == ("SUCCESS", [("evidence_missing", 0)])


def test_a_link_out_of_the_workspace_is_no_evidence(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    secret = desk.cwd / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (desk.workspace() / "notes").symlink_to(desk.cwd)
    desk.step(without(evidence_files=["notes/secret.txt"]))
    assert desk.status() == "INTERVENTION_REQUIRED"
    assert desk.audit() == [("evidence_escape", 0)]


def test_a_phase_takes_only_the_actions_it_names(desk: Desk) -> None:
    phases = [{"name": "only", "accepts": ["COMPLETED", "STUCK"]}]
    told = desk.spec(prompt="P", phases=phases, models={"worker": "scripted:echo"})
    desk.ok("job", "new", told, "--id", "demo")
    desk.step(without(action="RETRY"))
    assert desk.status() == "INTERVENTION_REQUIRED"
    assert desk.audit() == [("action", 0)]


def test_evidence_that_a_phase_demands_is_asked_for_again(desk: Desk) -> None:
    phases = [{"name": "only", "evidence": {"required": ["report.md"]}}]
    told = desk.spec(prompt="P", phases=phases, models={"worker": "scripted:echo"})
    desk.ok("job", "new", told, "--id", "demo")
    desk.step(DONE)
    (call,) = desk.calls()
    assert call["response"]["action"] == "RETRY"
    assert "report.md is missing" in call["response"]["overruled"]
    (desk.workspace() / "report.md").write_text("Seven\n", encoding="utf-8")
    assert desk.step(without(evidence_files=["report.md"])).code == 0
    assert desk.status() == "SUCCESS"


# --- answers from a person ------------------------------------------------------------------


def test_an_answer_from_a_person_is_one_call_that_is_marked_and_costs_nothing(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    assert desk.step(DONE).code == 0
    (call,) = desk.calls()
    assert call["is_simulated"] is True
    assert call["response"]["cost_usd"] == 0
    assert desk.manifest()["metrics"]["cumulative_cost"] == 0


@pytest.mark.parametrize(
    ("reply", "to", "kinds"),
    [
        (DONE, "SUCCESS", []),
        (without(action="STUCK"), "INTERVENTION_REQUIRED", []),
        ("no", "INTERVENTION_REQUIRED", ["schema"]),
        (without(evidence_files=["gone"]), "SUCCESS", ["evidence_missing"]),
    ],
)
def test_a_rehearsal_says_where_an_answer_leads_and_changes_no_byte(
    desk: Desk, reply: object, to: str, kinds: list[str]
) -> None:
    desk.new("--worker", "scripted:echo")
    before = desk.digest()
    text = reply if isinstance(reply, str) else json.dumps(reply)
    told = desk.ok("job", "step", "demo", "--response", text, "--dry-run")["data"]
    assert (told["from"], told["to"]) == ("PENDING", to)
    assert [each["kind"] for each in told["violations"]] == kinds
    said = desk("job", "step", "demo", "--response", text, "--dry-run").out
    assert f"PENDING → {to}" in said
    for each in told["violations"]:
        assert each["reason"] in said
    assert desk.digest() == before
    assert desk.audit() == []


def test_a_look_at_the_next_request_changes_nothing_however_often(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    kept = desk.workspace() / "kept.md"
    kept.write_text("Kept", encoding="utf-8")
    before = desk.digest()
    first = desk.ok("job", "step", "demo", "--dry-run")["data"]
    assert desk.ok("job", "step", "demo", "--dry-run")["data"] == first
    assert "Say hello" in first["prompt"]
    assert first["request"]["metadata"]["accepted_formats"] == ["COMPLETED", "STUCK", "RETRY"]
    assert desk.digest() == before
    assert kept.read_text(encoding="utf-8") == "Kept"


def test_an_answer_comes_from_a_file_or_from_standard_input(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    desk.refused("job", "step", "demo", "--response", "@nowhere.json", code=2, says="nowhere.json")
    assert desk.status() == "DRAFT"
    done = desk.shell("job", "step", "demo", "--response", "-", said=json.dumps(DONE).encode())
    assert (done.code, desk.status()) == (0, "SUCCESS"), done


# --- calls that fail ------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["", "@"])
def test_an_answer_comes_through_a_pipe_also_in_parts(desk: Desk, sign: str) -> None:
    """By a number, as `<(…)` of a shell gives one, and by a name."""
    desk.new("--worker", desk.script(), "--activate")
    named = desk.cwd / "pipe"
    os.mkfifo(named)
    for reply, path in ((AGAIN, None), (DONE, named)):
        with piped(json.dumps(reply).encode(), path) as name:
            desk.ok("job", "step", "demo", "--response", f"{sign}{name}")
    assert [each["response"]["action"] for each in desk.calls()] == ["RETRY", "COMPLETED"]


@contextmanager
def piped(data: bytes, path: Path | None) -> Iterator[str]:
    """A pipe to which somebody writes in two parts, the second when the first was taken."""

    def write(end: int) -> None:
        with open(end, "wb", buffering=0) as file:
            file.write(data[:9])
            while unread(file.fileno()):
                os.sched_yield()
            file.write(data[9:])

    if path is None:
        reader, writer = os.pipe()
        thread = threading.Thread(target=write, args=(writer,))
        name = f"/dev/fd/{reader}"
    else:
        reader = -1
        thread = threading.Thread(target=lambda: write(os.open(path, os.O_WRONLY)))
        name = str(path)
    thread.start()
    try:
        yield name
    finally:
        thread.join(10)
        if reader >= 0:
            os.close(reader)


def unread(pipe: int) -> int:
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_a_pipe_to_which_nobody_writes_is_not_waited_for_without_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(userfile, "WAIT_MS", 50)
    desk.new("--worker", desk.script(), "--activate")
    os.mkfifo(desk.cwd / "pipe")
    for name in ("pipe", "@pipe"):
        error = desk.refused(
            "job", "step", "demo", "--response", name, code=2, says="nothing wrote"
        )
        assert "begin what writes to it" in error["hint"]


def test_a_pipe_without_end_is_not_read_without_end(desk: Desk) -> None:
    desk.new("--worker", desk.script(), "--activate")
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as without_end:
        assert without_end.stdout is not None
        path = f"/dev/fd/{without_end.stdout.fileno()}"
        desk.refused("job", "step", "demo", "--response", path, code=2, says="larger than 64 MiB")
        without_end.kill()
    desk.refused(
        "job", "step", "demo", "--response", "/dev/zero", code=2, says="larger than 64 MiB"
    )


@pytest.mark.parametrize("name", ["reply.json", "./reply", "answers/1.txt", "."])
def test_a_misspelt_file_is_not_taken_for_an_answer(desk: Desk, name: str) -> None:
    desk.new("--worker", desk.script(), "--activate")
    desk.refused("job", "step", "demo", "--response", name, code=2, says=f"cannot read {name}")
    assert desk.status() == "PENDING"


def test_a_file_with_an_answer_is_named_with_or_without_a_sign(desk: Desk) -> None:
    desk.new("--worker", desk.script(), "--activate")
    (desk.cwd / "reply.json").write_text(json.dumps(AGAIN), encoding="utf-8")
    (desk.cwd / "last.json").write_text(json.dumps(DONE), encoding="utf-8")
    desk.ok("job", "step", "demo", "--response", "@reply.json")
    desk.ok("job", "step", "demo", "--response", "last.json")
    assert [each["response"]["action"] for each in desk.calls()] == ["RETRY", "COMPLETED"]


def test_a_call_that_takes_too_long_asks_a_person(desk: Desk) -> None:
    slow = desk.script({"reply": DONE, "delay": 9})
    desk.new("--worker", slow, "--timeout", "0.05s")
    data = desk.ran(code=1)
    assert data["status"] == "INTERVENTION_REQUIRED"
    (call,) = desk.calls()
    assert (call["response"]["status"], call["response"]["action"]) == ("TIMEOUT", "STUCK")
    assert desk.audit() == [("timeout", 0)]


def test_a_failing_provider_is_asked_three_more_times_with_growing_pauses(desk: Desk) -> None:
    down = {"error": "unavailable", "message": "503"}
    desk.new("--worker", desk.script(down, down, down, down, DONE), "--activate")
    clock = Turner()
    shown = desk.verbs(clock)("job run", id="demo")
    assert (shown.exit_code, shown.data["status"]) == (1, "INTERVENTION_REQUIRED")
    calls = desk.calls()
    assert [call["response"]["status"] for call in calls] == ["ERROR"] * 4
    assert [call["response"]["action"] for call in calls] == ["RETRY"] * 3 + ["STUCK"]
    assert all("503" in call["response"]["error"] for call in calls)
    asked = [instant_of(line["ts"]) for line in desk.lines(event="call")]
    pauses = [after - before for before, after in pairwise(asked)]
    assert all(pause >= 0.5 * 2**n for n, pause in enumerate(pauses)), pauses
    assert clock.now() - Turner().now() <= 1 + 2 + 4 + 3


def test_a_provider_that_is_back_ends_the_waiting(desk: Desk) -> None:
    desk.new("--worker", desk.script({"error": "unavailable"}, DONE), "--activate")
    shown = desk.verbs(Turner())("job run", id="demo")
    assert (shown.exit_code, shown.data["status"], shown.data["calls"]) == (0, "SUCCESS", 2)


@pytest.mark.parametrize("error", ["not_authorised", "declined", "too_long"])
def test_what_trying_again_does_not_mend_asks_a_person_at_once(desk: Desk, error: str) -> None:
    desk.new("--worker", desk.script({"error": error, "message": "No."}, DONE))
    data = desk.ran(code=1)
    assert (data["status"], data["calls"]) == ("INTERVENTION_REQUIRED", 1)
    assert "No." in data["why"]
    assert desk.calls()[0]["response"]["status"] == "ERROR"


LONG = "Count the beans in the jar that stands on the shelf of the kitchen"


def test_the_model_that_echoes_gives_a_job_an_answer_that_is_none(desk: Desk) -> None:
    models = ("--worker", "scripted:echo", "--supervisor", "scripted:echo")
    desk.ok("job", "new", "--prompt", LONG, "--id", "demo", *models)
    assert desk.ran()["status"] == "SUCCESS"
    assert desk.audit() == []


@pytest.mark.parametrize(
    "said", [f"{LONG}.", f"Task: {LONG}", f"# Task\n\n{LONG}\n\n# Phase default"]
)
def test_an_echo_asks_a_person_and_one_that_was_once_accepted_still_replays(
    desk: Desk, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {**DONE, "summary_for_supervisor": said}
    for id in ("now", "once"):
        desk.ok("job", "new", "--prompt", LONG, "--id", id, "--worker", desk.script(answer))
    assert desk.ran("now", code=1)["status"] == "INTERVENTION_REQUIRED"
    assert desk.audit("now") == [("summary", 0)]
    with monkeypatch.context() as older:
        older.setattr("holdfast.jobs.verdict.is_echo", lambda summary, asked: False)
        assert desk.ran("once")["status"] == "SUCCESS"
    for id in ("now", "once"):
        desk.ok("job", "replay", id)


def test_a_phase_that_takes_one_action_only_says_so_in_every_word(desk: Desk) -> None:
    phases = [{"name": "note", "accepts": ["COMPLETED"]}]
    told = desk.spec(prompt="P", phases=phases, models={"worker": "scripted:echo"})
    desk.ok("job", "new", told, "--id", "demo")
    prompt = desk.ok("job", "step", "demo", "--dry-run")["data"]["prompt"]
    assert '"enum":["COMPLETED"]' in prompt
    assert prompt.count("RETRY") == 1  # where the meaning of each action is told


def test_a_model_is_asked_for_nothing_more_and_what_it_adds_is_taken(desk: Desk) -> None:
    desk.new("--worker", desk.script({"reply": {**DONE, "type": "object", "mood": "fine"}}))
    prompt = desk.ok("job", "step", "demo", "--dry-run")["data"]["prompt"]
    assert '"additionalProperties":false' in prompt
    assert desk.ran()["status"] == "SUCCESS"
    (call,) = desk.calls()
    assert "error" not in call["response"]
    desk.ok("job", "replay", "demo")


def test_an_answer_that_was_cut_off_is_told_to_be(desk: Desk) -> None:
    cut = {"reply": '{"action": "COMPLETED", "evidence_files": [], "summ', "finish": "length"}
    desk.new("--worker", desk.script({**cut, "usage": {"output_tokens": 300}}))
    shown = desk.ran(code=1)
    assert "cut off after 300 tokens" in shown["why"]
    desk.ok("job", "replay", "demo")


def test_an_answer_that_is_too_long_is_said_to_be(desk: Desk) -> None:
    code = "import json, sys; said = json.loads(sys.argv[1])\n"
    code += "print(json.dumps({**said, 'notes': 'x' * (1 << 20)}))"
    desk.new("--worker", desk.program(code, json.dumps(DONE)))
    shown = desk.ran(code=1)
    assert "the answer is too long (1,048,576 characters are kept)" in shown["why"]


def test_a_worker_that_is_ended_for_what_it_prints_has_not_completed_anything(desk: Desk) -> None:
    flood = "import sys, time; print(sys.argv[1], flush=True)\n"
    flood += "sys.stderr.write('x' * (40 << 20)); time.sleep(60)"
    desk.new("--worker", desk.program(flood, json.dumps(DONE)))
    shown = desk.ran(code=1)
    assert shown["status"] == "INTERVENTION_REQUIRED"
    assert "printed more than it may" in shown["why"]
    desk.ok("job", "replay", "demo")
