"""What a job may use, who may decide about it, and what becomes of agents that hang or fail."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.job_spec import Gate
from holdfast.testing import DAY, Turner
from holdfast.workspace.command import pass_gates
from tests.jobs.desk import DONE, STUCK, Desk
from tests.jobs.test_every_state import leave_in_flight

# --- budgets --------------------------------------------------------------------------------


def paid(cost: float, reply: object = DONE) -> dict[str, Any]:
    return {"reply": reply, "cost_usd": cost}


def test_money_that_is_spent_halts_a_job_before_anybody_is_asked(desk: Desk) -> None:
    again = {**DONE, "action": "RETRY"}
    desk.new("--worker", desk.script(paid(0.5, again), paid(0.5)), "--max-cost", "0.9")
    data = desk.ran(code=1)
    assert (data["status"], data["calls"], data["cost_usd"]) == ("HALTED_COST", 1, 0.5)
    assert data["waits_for"] == "resume with a higher limit, or cancel"
    assert "0.5000 of 0.9000 USD" in data["why"]
    assert desk.manifest()["metrics"]["cumulative_cost"] == 50
    desk.refused("job", "run", "demo", says="is refused")
    desk.refused("job", "resume", "demo", says="--max-cost above what is used")
    desk.refused("job", "resume", "demo", "--max-cost", "0.5", says="--max-cost above")
    desk.ok("job", "resume", "demo", "--max-cost", "2")
    assert desk.ran()["status"] == "SUCCESS"
    assert desk.manifest()["cost_threshold"] == 200


def test_what_nobody_knows_the_price_of_is_said_and_what_a_gate_printed_is_indented(
    desk: Desk,
) -> None:
    worker = desk.program(f"print({json.dumps(DONE)!r})")
    desk.new("--worker", worker, "--gate", r"""sh -c "printf 'one\ntwo\n'; false" """)
    ran = desk("job", "run", "demo")
    assert "(4 calls, cost unknown for 4 calls (limit 10 USD))" in ran.out
    assert "ended with 1: one\n    two\nnext: " in ran.out
    assert "ended with 1: one\n    two\n  worker said" in desk("job", "show", "demo").out
    page = desk.ok("job", "history", "demo", "--format", "html")["data"]["html"]
    assert page.count("ended with 1: one</li>") == 4
    assert "one\ntwo\n[exit 1" in page


def test_a_job_that_the_budget_of_the_day_refuses_says_why_and_goes_on_when_there_is_money(
    desk: Desk,
) -> None:
    desk.ok("budget", "set", "--fleet-day", "0.4")
    desk.new("--worker", desk.script(paid(0.3), paid(0.3)), id="first")
    desk.new("--worker", desk.script(paid(0.3), paid(0.3)))
    desk.ran("first")
    for _ in range(2):
        ran = desk("job", "run", "demo")
        assert ran.code == 1
        shown = desk.show()
        assert shown["status"] == "PENDING"
        assert shown["why"].startswith("call 0 was refused: ")
    assert desk.audit() == [("refusal", None)] * 2
    assert len(desk.lines(event="note")) == 1
    desk.ok("budget", "set", "--fleet-day", "4")
    assert desk.ran()["why"] is None
    desk.ok("job", "replay", "demo")


SECRET = "ghp_" + "aB3dE5gH7j" * 3 + "kL9mNp"


def test_secrets_in_what_a_job_is_asked_are_masked_and_told(desk: Desk) -> None:
    models = ("--worker", desk.script(STUCK, DONE))
    desk.ok("job", "new", "--prompt", f"Use {SECRET}", "--id", "demo", *models)
    assert desk.audit() == [("redaction", None)]
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "continue", "--guidance", f"Or {SECRET}")
    desk.ran()
    rows = desk.ok("audit", "list", "--kind", "redaction")["rows"]
    assert [row["detail"] for row in rows] == [
        "1 secret masked in the spec of demo",
        "1 secret masked in a decision of demo",
    ]
    assert SECRET.encode() not in (desk.home / "jobs/demo/history.jsonl").read_bytes()


def test_time_that_is_used_halts_a_job_before_anybody_is_asked(desk: Desk) -> None:
    again = {**DONE, "action": "RETRY"}
    script = desk.script({"reply": again, "delay": 0.06}, DONE)
    desk.new("--worker", script, "--max-time", "0.05s", "--timeout", "5m")
    data = desk.ran(code=1)
    assert (data["status"], data["calls"]) == ("HALTED_TIME", 1)
    desk.refused("job", "resume", "demo", "--max-cost", "9", says="--max-time above")
    desk.ok("job", "resume", "demo", "--max-time", "1h")
    assert desk.ran()["status"] == "SUCCESS"


def test_calls_that_are_made_hold_a_job(desk: Desk) -> None:
    again = {**DONE, "action": "RETRY"}
    desk.new("--worker", desk.script(again, DONE), "--max-iterations", "1")
    data = desk.ran(code=1)
    assert (data["status"], data["hold"], data["calls"]) == ("PENDING", "iterations", 1)
    desk.ok("job", "resume", "demo", "--max-iterations", "2")
    assert desk.ran()["status"] == "SUCCESS"


def test_thresholds_of_the_format_are_taken_and_their_unit_is_told(desk: Desk) -> None:
    told = desk.spec(
        prompt="P",
        models={"worker": "scripted:echo"},
        cost_threshold=2000,
        time_threshold_minutes=30,
    )
    ran = desk("job", "new", told, "--id", "demo")
    assert ran.code == 0
    assert "cost_threshold 2000 is in cents: 20.00 USD" in ran.err
    limits = desk.show()["limits"]
    assert (limits["max_cost_usd"], limits["max_seconds"]) == (20, 1800)


@pytest.mark.parametrize(
    ("cost", "level"), [(0.74, "green"), (0.75, "yellow"), (0.99, "yellow"), (1.0, "red")]
)
def test_how_much_is_used_has_a_colour(desk: Desk, cost: float, level: str) -> None:
    desk.new("--worker", desk.script(paid(cost)), "--max-cost", "1")
    desk.ran()
    assert desk.show()["used"]["cost"]["level"] == level


def test_what_was_measured_of_each_call_comes_as_csv(desk: Desk) -> None:
    desk.new("--worker", desk.script(paid(0.25)))
    desk.ran()
    head, row = desk("job", "show", "demo", "--csv").out.splitlines()
    assert head.split(",") == [
        "timestamp",
        "step_number",
        "role",
        "action",
        "summary",
        "cost_usd",
        "time_seconds",
        "token_input",
        "token_output",
        "token_cache_read",
        "cache_hit",
        "ttft_seconds",
        "throughput_tokens_per_second",
        "total_tokens",
        "status_after",
    ]
    cells = dict(zip(head.split(","), row.split(","), strict=True))
    assert (cells["action"], cells["cost_usd"]) == ("COMPLETED", "0.25")
    assert cells["status_after"] == "SUCCESS"


# --- decisions ------------------------------------------------------------------------------


def approving(desk: Desk, id: str = "demo") -> str:
    """A job that waits for approval; the hash of what it shows."""
    phases = [{"name": "work", "approval": True}]
    told = desk.spec(prompt="P", phases=phases, models={"worker": "scripted:echo"})
    desk.ok("job", "new", told, "--id", id)
    desk.step(DONE, id)
    return desk.show(id)["shown"]


def test_an_approval_holds_for_what_was_shown_and_for_nothing_else(desk: Desk) -> None:
    shown = approving(desk)
    desk.ok("job", "steward", "demo", "reject", "--guidance", "Too long", "--shown", shown)
    desk.step({**DONE, "summary_for_supervisor": "It is shorter."})
    for decision in (("approve",), ("reject", "--guidance", "No")):
        words = ("steward", "demo", *decision, "--shown", shown)
        error = desk.refused("job", *words, says="has changed since")
        assert desk.show()["shown"] in error["hint"]
    assert [kind for kind, _ in desk.audit()] == ["stale_approval"] * 2
    desk.ok("job", "steward", "demo", "approve", "--shown", desk.show()["shown"], "--by", "Ada")
    assert desk.status() == "SUCCESS"
    (line,) = [each for each in desk.lines(event="move") if each["cause"] == "approve"]
    assert (line["by"], len(line["approved"])) == ("Ada", 64)


def test_decisions_of_all_jobs_are_in_one_list(desk: Desk) -> None:
    approving(desk, "a")
    desk.new("--worker", "scripted:echo", id="b")
    desk.step(STUCK, "b")
    desk.new("--worker", "scripted:echo", "--max-cost", "0", id="c")
    desk.ran("c", code=1)
    desk.new("--worker", "scripted:echo", "--activate", id="d")
    waits = {row["job"]: row["waits_for"] for row in desk.ok("job", "list", "--waiting")["rows"]}
    assert waits == {
        "a": "approve or reject",
        "b": "continue or halt",
        "c": "resume with a higher limit, or cancel",
    }
    counts = desk.ok("status")["counts"]
    assert (counts["jobs"], counts["jobs_waiting_for_you"]) == (4, 3)


def test_an_answer_and_a_rejection_need_a_word(desk: Desk) -> None:
    approving(desk)
    desk.refused("job", "steward", "demo", "reject", code=2, says="without a word")
    desk.refused("job", "steward", "demo", "answer", code=2, says="without a word")


# --- runners that died ----------------------------------------------------------------------


def test_a_job_whose_runner_died_is_told_by_the_doctor_and_goes_on(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")
    leave_in_flight(desk)
    row = next(each for each in desk("doctor", "--json").rows() if each["check"] == "job demo")
    assert row["state"] == "warning" and "its runner died while scripted:" in row["detail"]
    assert desk.ran()["status"] == "SUCCESS"
    events = [each.get("event") for each in desk.manifest()["history"]]
    assert events.count("AUTOMATIC_RECOVERY") == 1
    assert "job demo" not in [each["check"] for each in desk("doctor", "--json").rows()]


def test_a_call_that_may_have_had_an_effect_is_for_somebody_to_decide(desk: Desk) -> None:
    once = {"name": "work", "role": "worker", "repeatable": False}
    spec = desk.spec(prompt="p", models={"worker": desk.script(DONE)}, phases=[once])
    desk.ok("job", "new", spec, "--id", "demo", "--activate")
    leave_in_flight(desk)
    said = desk("job", "run", "demo")
    assert said.code == 1
    assert "INTERVENTION_REQUIRED" in said.out and "steward demo continue" in said.out
    desk.refused("job", "run", "demo", says="run is refused")


def test_a_job_that_waits_is_never_flagged_however_long(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    later = Turner(time.time() + 400 * DAY)
    rows = [dict(row) for row in desk.verbs(later)("doctor").rows]
    assert [row for row in rows if "demo" in row["check"]] == []
    assert (desk.status(), desk.queue()) == ("PENDING", ["demo"])


def test_a_job_that_nobody_listed_is_listed_by_the_doctor(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    for name in ("queue.jsonl", "index.json", ".index.json.view"):
        (desk.home / "jobs" / name).unlink()
    rows = desk("doctor", "--json").rows()
    assert any(row["check"] == "job demo" and "not listed" in row["detail"] for row in rows)
    desk("doctor", "--fix")
    assert list(desk.index()["jobs"]) == ["demo"]


def test_files_of_a_job_that_never_came_to_be_are_told_by_the_doctor(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    left = desk.home / "jobs/demo-again-abc123/files"
    left.mkdir(parents=True)
    assert "demo-again" not in desk("doctor", "--json").out  # it may be in the making
    os.utime(left.parent, (time.time() - 2 * 3600,) * 2)
    rows = {row["check"]: row for row in desk("doctor", "--json").rows()}
    told = rows["job demo-again-abc123"]
    assert (told["state"], told["fix"]) == ("warning", f"remove {left.parent}")
    assert "job demo" not in rows


def test_a_second_runner_is_told_who_has_the_job(desk: Desk) -> None:
    from holdfast.jobs.job import Job  # noqa: PLC0415
    from holdfast.store.home import Home  # noqa: PLC0415

    desk.new("--worker", "scripted:echo", "--activate")
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.own("a test")
        desk.verbs(Turner(time.time() + 400 * DAY))("doctor", fix=True)
        ran = desk.shell("job", "run", "demo", "--json")
    assert ran.code == 5
    assert f"process {os.getpid()}" in ran.error()["message"]
    assert desk.shell("job", "run", "demo").code == 0


# --- programs that hang or fail -------------------------------------------------------------

HANGS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
with open(sys.argv[1], "w") as file:
    file.write(str(child.pid))
print("The last thing it said", flush=True)
time.sleep(600)
"""


def test_a_program_that_hangs_is_ended_with_its_children_and_its_last_words_kept(
    desk: Desk, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    desk.new("--worker", desk.program(HANGS, str(pid)), "--timeout", "3s")
    data = desk.ran(code=1)
    assert data["status"] == "INTERVENTION_REQUIRED"
    (call,) = desk.calls()
    assert call["response"]["status"] == "TIMEOUT"
    assert "The last thing it said" in json.dumps(call["response"])
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert desk.audit() == [("timeout", 0)]


def test_a_gate_has_no_more_time_than_the_job(desk: Desk) -> None:
    gates = [{"run": "sleep 60"}, {"run": "sleep 61"}]
    worker = {"worker": desk.script(DONE, DONE)}
    spec = desk.spec(prompt="p", phases=[{"name": "a", "gates": gates}], models=worker)
    desk.ok("job", "new", spec, "--id", "demo", "--max-time", "1s")
    began = time.monotonic()
    data = desk.ran(code=1)
    assert time.monotonic() - began < 20
    assert data["status"] == "HALTED_TIME"
    (run,) = desk.lines(event="judged")[0]["gate"]["runs"]
    assert run["exit_code"] == 124
    assert "all that the job had left" in run["output"]


def test_a_gate_for_which_no_time_is_left_is_not_tried(tmp_path: Path) -> None:
    gate = Gate.model_validate({"run": f"touch {tmp_path}/tried"})
    passed = pass_gates([gate], str(tmp_path), Turner(), left=0.0)
    assert not passed.ok
    assert "was not tried" in passed.complaint
    assert not (tmp_path / "tried").exists()


@pytest.mark.parametrize("cut", [3, 20, 38])
def test_half_a_secret_is_never_kept_of_what_a_gate_printed(tmp_path: Path, cut: int) -> None:
    secret = "ghp_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQq7r"
    (tmp_path / "log").write_text("a\n" * 900 + secret + " b" * ((1_960 - cut) // 2))
    gate = Gate.model_validate({"run": "cat log missing"})
    passed = pass_gates([gate], str(tmp_path), Turner(), left=60.0)
    assert not passed.ok
    assert "No such file" in passed.complaint
    assert not any(secret[at : at + 8] in passed.complaint for at in range(33))


def test_a_gate_that_took_too_long_is_said_to(desk: Desk) -> None:
    gates = [{"run": "sh -c 'echo 3 passed; sleep 60'", "timeout": "0.5s"}]
    phase = {"name": "a", "gates": gates, "max_retries": 0}
    models = {"worker": desk.script(DONE)}
    spec = desk.spec(job_id="demo", prompt="Do", models=models, phases=[phase])
    desk.ok("job", "new", spec)
    assert "ended with 124: it did not end in 0.5 s\n3 passed" in desk.ran(code=1)["why"]


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        ("import sys; sys.exit('Error 401: invalid API key')", "ERROR", "not_authorised"),
        ("import sys; sys.exit('maximum context length exceeded')", "ERROR", "too_long"),
        ("import sys; sys.exit(3)", "ERROR", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ERROR", "signal 9"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ERROR", "signal 15"),
        ("import sys; sys.exit(124)", "ERROR", "exit code 124 (out of time"),
        ("import sys; sys.exit(137)", "ERROR", "exit code 137 (killed"),
        ("import sys; sys.exit(143)", "ERROR", "exit code 143 (told to end"),
        ("print(input('Continue? [y/n] ') and input())", "ERROR", "EOF"),
        ("pass", "SUCCESS", "nothing was answered"),
    ],
)
def test_each_way_to_fail_is_told_and_asks_a_person(
    desk: Desk, code: str, outcome: str, says: str
) -> None:
    desk.new("--worker", desk.program(code))
    data = desk.ran(code=1)
    assert data["status"] == "INTERVENTION_REQUIRED"
    (call,) = desk.calls()
    assert call["response"]["status"] == outcome
    assert says in json.dumps(call["response"]), call["response"]


def test_a_program_that_its_provider_fails_is_run_again_and_starts_over(desk: Desk) -> None:
    down = """
import json, os, sys
sys.stdin.read()
tries = len(os.listdir(sys.argv[1]))
open(f"{sys.argv[1]}/{tries}", "w").close()
open("left.md", "a").write("x")
if tries < 1:
    sys.exit("HTTP 503 Service Unavailable")
print(json.dumps({"action": "COMPLETED", "evidence_files": ["left.md"],
                  "summary_for_supervisor": "It is done."}))
"""
    tries = desk.cwd / "tries"
    tries.mkdir()
    desk.new("--worker", desk.program(down, str(tries)))
    assert desk.ran()["status"] == "SUCCESS"
    assert [call["response"]["action"] for call in desk.calls()] == ["RETRY", "COMPLETED"]
    assert len(list(tries.iterdir())) == 2
    assert (desk.workspace() / "left.md").read_text() == "x"


def test_a_gate_looks_at_what_was_just_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled Python is trusted for a source of the same size and second."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    second_try = """
import json, os, sys
tries = len(os.listdir(sys.argv[1]))
open(f"{sys.argv[1]}/{tries}", "w").close()
open("answer.py", "w").write(f"right = {tries}")
os.utime("answer.py", (1e9, 1e9))
print(json.dumps({"action": "COMPLETED", "evidence_files": ["answer.py"],
                  "summary_for_supervisor": "It is done."}))
"""
    tries = desk.cwd / "tries"
    tries.mkdir()
    looks = f"{sys.executable} -c 'import sys, answer; sys.exit(not answer.right)'"
    desk.new("--worker", desk.program(second_try, str(tries)), "--gate", looks)
    assert desk.ran()["status"] == "SUCCESS"
    assert [call["response"]["action"] for call in desk.calls()] == ["RETRY", "COMPLETED"]


def test_an_interrupted_run_leaves_a_job_that_goes_on(desk: Desk) -> None:
    hangs = "import time; print('here', flush=True); time.sleep(600)"
    desk.new("--worker", desk.program(hangs))
    process = desk.shell.start("job", "run", "demo")
    end = time.monotonic() + 60
    while desk.status() != "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    ran = desk("job", "run", "demo")
    assert ran.code == 1 and "may have had an effect" in ran.out
