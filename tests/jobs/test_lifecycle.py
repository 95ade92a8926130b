"""From a prompt to SUCCESS: making jobs, finding them, the queue, and running them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import DiskFull
from holdfast.workspace.workspace import Workspace
from tests.jobs.desk import AGAIN, DONE, STUCK, Desk

ECHO = ("--worker", "scripted:echo")


def test_a_home_begins_without_jobs_and_a_second_init_changes_no_byte(desk: Desk) -> None:
    listed = desk.ok("job", "list")
    assert (listed["rows"], listed["counts"]) == ([], {"jobs": 0, "in_use": None})
    assert desk.ok("job", "queue")["rows"] == []
    before = {path: path.read_bytes() for path in desk.home.rglob("*") if path.is_file()}
    assert desk("init").code == 0
    assert {path: path.read_bytes() for path in before} == before


def test_a_new_job_is_a_draft_with_nothing_used_and_the_one_in_use(desk: Desk) -> None:
    desk.new(*ECHO)
    manifest = desk.manifest()
    assert (manifest["job_id"], manifest["status"]) == ("demo", "DRAFT")
    assert (manifest["prompt"], manifest["history"]) == ("Say hello", [])
    used = manifest["metrics"]
    assert (used["cumulative_cost"], used["cumulative_time_seconds"]) == (0, 0)
    index = desk.index()
    assert (index["current_job_id"], list(index["jobs"]), index["queue"]) == ("demo", ["demo"], [])


def test_a_job_without_a_name_gets_one(desk: Desk) -> None:
    made = desk.ok("job", "new", "--prompt", "Say hello", *ECHO)
    assert re.fullmatch(r"job-[0-9a-f]{8}", made["target"])


@pytest.mark.parametrize("name", ["job.json", "job-spec.json", "sample-job.json", "job.yaml"])
def test_a_folder_with_a_spec_is_a_job(desk: Desk, name: str) -> None:
    folder = desk.cwd / "from-here"
    folder.mkdir()
    (folder / "note.md").write_text("Look", encoding="utf-8")
    told = {
        "job_id": "named-inside",
        "prompt": "Count",
        "phases": [{"name": "count", "worker_instructions": "By hand"}, {"name": "check"}],
        "models": {"worker": "scripted:echo"},
        "attachments": ["note.md"],
    }
    (folder / name).write_text(json.dumps(told), encoding="utf-8")
    assert desk.ok("job", "new", "from-here")["target"] == "named-inside"
    manifest = desk.manifest("named-inside")
    assert (manifest["prompt"], manifest["current_phase"]) == ("Count", "count")
    assert [each["worker_instructions"] for each in manifest["phases"]] == ["By hand", None]
    assert desk.show("named-inside")["attachments"] == ["attachments/note.md"]


def test_a_folder_gives_its_name_to_a_spec_that_has_none(desk: Desk) -> None:
    folder = desk.cwd / "from-here"
    folder.mkdir()
    (folder / "job.yaml").write_text("prompt: Count\nmodels: {worker: scripted:echo}\n")
    assert desk.ok("job", "new", str(folder))["target"] == "from-here"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--prompt", "a", "spec.json"), 2, "a spec and a prompt"),
        ((), 2, "nothing to do"),
        (("--prompt", " "), 2, "nothing to do"),
        (("--prompt", "a", "--id", "../x"), 2, "not a job"),
        (("--prompt", "a", "--id", "a.b"), 2, "not a job"),
        (("--prompt", "a", "--max-cost", "-1"), 2, "--max-cost"),
        (("--prompt", "a", "--max-cost", "nan"), 2, "--max-cost"),
        (("--prompt", "a", "--max-iterations", "0"), 2, "max_iterations"),
        (("--prompt", "a", "--timeout", "0s"), 2, "0s"),
        (("--prompt", "a", "--isolation", "worktree"), 2, "needs a source"),
        (("--prompt", "a", "--source", "/nowhere/at/all"), 4, "/nowhere/at/all"),
        (("--prompt", "a", "--attach", "/nowhere/at/all"), 4, "/nowhere/at/all"),
        (("--prompt", "a", "--gate", "echo 'open"), 2, "echo 'open"),
        (("missing.yaml",), 4, "missing.yaml"),
        (("--prompt", "a", "--runner", "x"), 2, "--runner"),
        (("--prompt", "a", "--base", "main"), 2, "the base 'main' is of no use"),
        (("--prompt", "a", "--base", "main", "--source", "."), 2, "of no use to isolation dir"),
        (("--prompt", "a", "--agent", "x"), 2, "--agent"),
        (("--prompt", "a", "--model", "x"), 2, "--model"),
        (("--prompt", "a", "--resume"), 2, "--resume"),
    ],
)
def test_what_makes_no_job_is_refused_and_leaves_nothing(
    desk: Desk, words: tuple[str, ...], code: int, says: str
) -> None:
    desk.refused("job", "new", *words, code=code, says=says)
    assert desk.ok("job", "list")["rows"] == []
    assert not (desk.home / "jobs").exists() or not any((desk.home / "jobs").glob("*/"))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"prompt": "a", "phasse": []}, "phasse"),
        ({"prompt": "a", "phases": [{"name": "x", "timout": "1m"}]}, "timout"),
        ({"prompt": "a", "phases": [{"name": "x"}, {"name": "x"}]}, "a name of its own"),
        ({"prompt": "a", "budget": {"max_money": 1}}, "max_money"),
        ({"prompt": "a", "isolation": "cave"}, "isolation"),
        ({"prompt": "a", "phases": [{"name": "x", "timeout": "soon"}]}, "soon"),
        ({"prompt": "a", "phases": [{"name": "x", "accepts": ["DONE"]}]}, "accepts"),
        ({"prompt": "a", "files": ["../x"]}, "files"),
        ({"prompt": "a", "job_id": "../x"}, "job_id"),
        ({"prompt": "a", "cost_threshold": "50"}, "cost_threshold: '50' is no number"),
        ({"prompt": "a", "time_threshold_minutes": "5"}, "time_threshold_minutes: '5'"),
        ({"prompt": "a", "time_threshold_minutes": True}, "time_threshold_minutes: True"),
        ({"prompt": "a", "phases": {"mend": {"approval": True}}}, "phases: a mapping, not a list"),
        ({"prompt": "a", "phases": "abc"}, "phases: a text, not a list"),
        ({"prompt": "a", "phases": 5}, "phases: a number, not a list"),
        ({"prompt": "a", "phases": 0}, "phases: a number, not a list"),
        ({"prompt": "a", "phases": [5]}, "phases"),
        ({"prompt": "a", "budget": 5}, "budget: a number, not a mapping"),
        ({"prompt": "a", "budget": ["a"]}, "budget: a list, not a mapping"),
        ({"prompt": "a", "budget": False}, "budget: a truth value, not a mapping"),
        ({"prompt": "a", "budget": {"max_cost": "5"}}, "budget.max_cost: "),
        ({"prompt": "a", "budget": {"max_cost": -5}}, "budget.max_cost: "),
        ({"prompt": "a", "phases": [{"name": "x", "timeout": -1}]}, "phases.0.timeout: "),
        (
            {"prompt": "a", "budget": {"max_cost": 1, "max_cost_usd": 2}},
            "max_cost_usd is said twice",
        ),
        ({"prompt": "a", "budget": {"max_cost": 1}, "cost_threshold": 200}, "is said twice"),
        ({"phases": [{"name": "x", "gate": "true", "gates": ["false"]}]}, "gates is said twice"),
        ({"phases": [{"name": "x", "timeout": "1m", "timeout_seconds": 2}]}, "is said twice"),
        ([1], "a spec is an object"),
    ],
)
def test_a_spec_with_a_mistake_says_where_it_is(desk: Desk, told: object, says: str) -> None:
    path = desk.cwd / "spec.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    error = desk.refused("job", "new", "spec.json", code=2, says=says)
    assert "spec.json" in error["message"]


def note(folder: Path, name: str, text: str = "a note") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    ("names", "isolation", "code", "says"),
    [
        (("a/n.md", "b/n.md"), "directory", 1, "both called n.md"),
        (("a/two\nlines",), "directory", 2, "not a name for an attachment"),
        (("a/.env",), "directory", 2, "not a name for an attachment"),
        (("a/there.md",), "none", 1, "is there and differs"),
        (("a/there.md",), "directory", 1, "is there and differs"),
    ],
)
def test_what_cannot_be_attached_makes_no_job(
    desk: Desk, names: tuple[str, ...], isolation: str, code: int, says: str
) -> None:
    source = desk.cwd / "source"
    source.mkdir()
    note(source / "attachments", "there.md", "another")
    words = [each for at in names for each in ("--attach", note(desk.cwd / at[0], at[2:], at))]
    told = ("--prompt", "a", "--isolation", isolation, "--source", str(source), *ECHO)
    desk.refused("job", "new", *told, *words, code=code, says=says)
    assert desk.ok("job", "list")["rows"] == []


def test_a_job_that_cannot_get_what_was_attached_never_runs_without_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Workspace, name: str, source: str) -> str:
        raise DiskFull("attaching a file: no space", hint="free some")

    monkeypatch.setattr(Workspace, "attach", full)
    word = note(desk.cwd / "a", "n.md")
    assert desk("job", "new", "--prompt", "a", "--id", "demo", *ECHO, "--attach", word).code == 1
    assert (desk.status(), "no space" in desk.show()["why"]) == ("CANCELED", True)
    assert desk.ok("job", "list")["counts"]["in_use"] is None


def test_another_attachment_of_the_same_name_is_refused_and_the_same_one_is_there_already(
    desk: Desk,
) -> None:
    first = note(desk.cwd / "a", "n.md", "first")
    desk.new(*ECHO, "--attach", first)
    desk.refused("job", "attach", note(desk.cwd / "b", "n.md", "other"), says="differs")
    assert (desk.workspace() / "attachments/n.md").read_text() == "first"
    assert not desk.ok("job", "attach", first)["applied"]
    assert desk.ok("job", "attach", note(desk.cwd / "b", "m.md"))["applied"]


def test_the_same_name_twice_is_refused_and_the_first_job_stays(desk: Desk) -> None:
    desk.new(*ECHO)
    desk.refused("job", "new", "--prompt", "Other", "--id", "demo", says="already")
    assert desk.manifest()["prompt"] == "Say hello"


def test_a_dry_run_shows_the_whole_spec_and_makes_nothing(desk: Desk) -> None:
    told = desk.ok("job", "new", "--prompt", "P", "--id", "demo", *ECHO, "--dry-run")
    assert (told["applied"], told["dry_run"]) == (False, True)
    assert told["data"]["phases"][0]["timeout_seconds"] == 600
    assert desk.ok("job", "list")["rows"] == []


# --- which job is meant ---------------------------------------------------------------------


def test_an_argument_beats_the_environment_which_beats_the_job_in_use(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in ("first", "second", "third"):
        desk.new(*ECHO, id=id)
    assert desk.ok("job", "show")["data"]["job"] == "third"
    assert desk.ok("job", "use", "second")["applied"]
    assert not desk.ok("job", "use", "second")["applied"]
    assert desk.ok("job", "show")["data"]["job"] == "second"
    monkeypatch.setenv("HOLDFAST_JOB_ID", "first")
    assert desk.ok("job", "show")["data"]["job"] == "first"
    assert desk.ok("job", "show", "third")["data"]["job"] == "third"


def test_where_no_job_is_meant_a_line_says_how_to_name_one(desk: Desk) -> None:
    error = desk.refused("job", "show", code=2, says="no job is named and none is in use")
    assert "job use" in error["hint"]


@pytest.mark.parametrize(
    "verb",
    [
        ("show",),
        ("run",),
        ("step",),
        ("activate",),
        ("set", "--rank", "0"),
        ("use",),
        ("suspend",),
        ("resume",),
        ("cancel",),
        ("rewind", "--start"),
        ("checkpoint", "name"),
        ("steward", "halt"),
        ("replay",),
    ],
)
def test_a_job_that_is_not_there_is_one_line_of_error(desk: Desk, verb: tuple[str, ...]) -> None:
    ran = desk("job", verb[0], "nobody", *verb[1:])
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.splitlines()[0] == "error: there is no job nobody"
    assert len(ran.err.splitlines()) == 2
    assert not (desk.home / "jobs/nobody").exists()


# --- drafts and the queue -------------------------------------------------------------------


def test_activated_jobs_wait_in_their_order_and_ranks_change_it(desk: Desk) -> None:
    for id in "abcd":
        desk.new(*ECHO, id=id)
    for id in "abc":
        desk.ok("job", "activate", id)
    assert desk.queue() == ["a", "b", "c"]
    desk.ok("job", "activate", "d", "--rank", "0")
    assert desk.queue() == ["d", "a", "b", "c"]
    assert desk.ok("job", "set", "d", "--rank", "-1")["data"] == {"rank": 3}
    assert desk.ok("job", "set", "c", "--rank", "0")["applied"]
    assert not desk.ok("job", "set", "c", "--rank", "0")["applied"]
    assert desk.queue() == ["c", "a", "b", "d"]
    desk.ok("job", "set", "a", "--rank", "99")
    assert desk.queue() == ["c", "b", "d", "a"]
    assert desk.index()["queue"] == ["c", "b", "d", "a"]


def test_a_rank_behind_the_end_is_the_end(desk: Desk) -> None:
    desk.new(*ECHO, "--activate", id="a")
    desk.new(*ECHO, id="b")
    desk.ok("job", "activate", "b", "--rank", "7")
    assert desk.queue() == ["a", "b"]


def test_ranks_that_mean_nothing_are_refused(desk: Desk) -> None:
    desk.new(*ECHO)
    desk.refused("job", "activate", "demo", "--rank", "-1", code=2, says="rank -1")
    desk.refused("job", "set", "demo", "--rank", "0", code=4, says="not in the queue")
    desk.ok("job", "activate", "demo")
    desk.refused("job", "set", "demo", "--rank", "-2", code=2, says="rank -2")
    desk.refused("job", "set", "demo", "--rank", "0", "--prompt", "x", code=2, says="--rank")
    desk.refused("job", "activate", "demo", says="activate is refused")


def test_a_job_of_which_nobody_said_what_to_do_is_not_activated(desk: Desk) -> None:
    told = desk.spec(phases=["one"], models={"worker": "scripted:echo"})
    desk.ok("job", "new", told, "--id", "demo")
    desk.refused("job", "activate", "demo", says="nobody said what is to be done")
    desk.refused("job", "run", "demo", says="nobody said what is to be done")
    assert desk.status() == "DRAFT"


def test_a_job_without_phases_has_one(desk: Desk) -> None:
    assert [each["name"] for each in desk.new(*ECHO)["phases"]] == ["default"]


def test_a_draft_can_be_changed_and_nothing_else(desk: Desk) -> None:
    desk.new(*ECHO)
    texts = {"objective": "O", "details": "D", "acceptance": "A", "description": "In a line"}
    words = [word for name, text in texts.items() for word in (f"--{name}", text)]
    desk.ok("job", "set", "demo", *words, "--files", "a, b", "--max-cost", "2.5")
    desk.ok("job", "set", "--files", "a.txt, b.txt", "--max-time", "90m")
    manifest = desk.manifest()
    assert {name: manifest[name] for name in texts} == texts
    assert manifest["files"] == ["a.txt", "b.txt"]
    assert (manifest["cost_threshold"], manifest["time_threshold_minutes"]) == (250, 90)
    desk.refused("job", "set", "demo", code=2, says="nothing to set")
    desk.refused("job", "set", "demo", "--files", "/etc/passwd", code=2, says="files")
    desk.ok("job", "activate", "demo")
    desk.refused("job", "set", "demo", "--objective", "Other", says="only a draft")


def test_a_supervisor_named_later_reviews_the_work(desk: Desk) -> None:
    desk.new(*ECHO, "--timeout", "5m", "--gate", "true")
    desk.ok("job", "set", "demo", "--supervisor", desk.script(AGAIN, DONE))
    work, review = desk.show()["spec"]["phases"]
    assert (work["name"], work["gates"][0]["run"]) == ("work", "true")
    assert (review["name"], review["role"], review["timeout_seconds"]) == (
        "review",
        "supervisor",
        300,
    )
    desk.ran()
    assert [each["request"]["metadata"]["role"] for each in desk.calls()] == [
        "worker",
        "supervisor",
    ] * 2


def test_a_supervisor_without_a_phase_is_refused(desk: Desk) -> None:
    told = desk.spec(prompt="P", phases=[{"name": "one"}], models={"worker": "scripted:echo"})
    words = ("--supervisor", "scripted:echo")
    desk.refused("job", "new", told, *words, code=2, says="no phase with the role supervisor")
    desk.ok("job", "new", told, "--id", "demo")
    desk.refused("job", "set", "demo", *words, code=2, says="no phase with the role supervisor")


def test_a_state_that_there_is_not_is_answered_with_those_there_are(desk: Desk) -> None:
    error = desk.refused("job", "list", "--status", "BOGUS", code=2, says="BOGUS")
    for state in ("DRAFT", "PENDING", "INTERVENTION_REQUIRED", "HALTED_TIME"):
        assert state in error["hint"]
    desk.new(*ECHO)
    assert [row["job"] for row in desk.ok("job", "list", "--status", "DRAFT")["rows"]] == ["demo"]
    assert desk.ok("job", "list", "--status", "SUCCESS")["rows"] == []


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nobody:x", "nobody"),
        ("command:no-such-program-anywhere", "no-such-program-anywhere"),
        ("scripted:no-such-file", "no-such-file"),
        ("command:", "command"),
    ],
)
def test_who_is_not_there_is_told_when_the_job_is_activated(
    desk: Desk, model: str, says: str
) -> None:
    desk.new("--worker", model)
    for verb in ("activate", "run", "step"):
        ran = desk("job", verb, "demo", "--json")
        assert ran.code != 0
        assert says in ran.error()["message"]
        assert ran.error()["hint"]
        assert desk.status() == "DRAFT"
    assert desk.queue() == []


def test_a_new_job_that_cannot_be_activated_is_said_to_be_kept(desk: Desk) -> None:
    words = ("job", "new", "--prompt", "P", "--id", "demo", "--worker", "scripted:no-such-file")
    ran = desk(*words, "--activate")
    assert ran.code != 0
    assert "demo is kept as a draft" in ran.err
    assert desk.status() == "DRAFT"


@pytest.mark.parametrize(
    ("gate", "doubted"), [("exit 3", True), ("nosuchprogram -x", True), ("sh -c 'exit 3'", False)]
)
def test_a_gate_whose_program_is_not_there_is_told_at_once(
    desk: Desk, gate: str, doubted: bool
) -> None:
    ran = desk("job", "new", "--prompt", "P", "--id", "demo", *ECHO, "--gate", gate)
    assert ran.code == 0
    assert ("without a shell" in ran.err) == doubted


def test_a_phase_for_which_nobody_is_named_is_told_when_the_job_is_activated(desk: Desk) -> None:
    told = desk.spec(prompt="P", phases=[{"name": "a"}, {"name": "b", "role": "editor"}])
    desk.ok("job", "new", told, "--id", "demo", *ECHO)
    ran = desk("job", "activate", "demo", "--json")
    assert ran.code != 0 and "editor" in ran.error()["message"]


# --- running --------------------------------------------------------------------------------


def test_phases_are_visited_in_order_with_their_words_in_what_was_asked(desk: Desk) -> None:
    names = ["plan", "build", "review", "polish"]
    phases = [
        {
            "name": name,
            "role": "supervisor" if name == "review" else "worker",
            "instructions": f"Exactly this for {name}: {{x}} “ü” \\n",
        }
        for name in names
    ]
    prompt = 'Build it\nwith "quotes" and $signs'
    path = desk.spec(
        prompt=prompt,
        phases=phases,
        models={"worker": "scripted:echo", "supervisor": desk.script(DONE)},
    )
    desk.ok("job", "new", path, "--id", "demo")
    data = desk.ran()
    assert (data["status"], data["calls"]) == ("SUCCESS", 4)
    calls = desk.calls()
    assert [call["request"]["metadata"]["phase"] for call in calls] == names
    before = [call["state_before"] for call in calls]
    assert before == ["PENDING", "PENDING", "REVIEWING", "PENDING"]
    after = [call["response"]["new_status"] for call in calls]
    assert after == ["PENDING", "REVIEWING", "PENDING", "SUCCESS"]
    for call, phase in zip(calls, phases, strict=True):
        assert prompt in call["request"]["prompt"]
        assert phase["instructions"] in call["request"]["prompt"]
    assert desk.queue() == []


def test_run_takes_the_first_of_the_queue_and_says_when_it_is_empty(desk: Desk) -> None:
    ran = desk("job", "run", "--json")
    assert (ran.code, ran.json()["applied"]) == (0, False)
    assert "no job waits" in ran.json()["detail"]
    assert "in_use" not in desk("job", "list").err
    for id in ("a", "b"):
        desk.new(*ECHO, "--activate", id=id)
    desk.ok("job", "set", "b", "--rank", "0")
    assert desk.ok("job", "run")["data"]["job"] == "b"
    assert (desk.queue(), desk.status("b"), desk.status("a")) == (["a"], "SUCCESS", "PENDING")


@pytest.mark.parametrize("end", ["SUCCESS", "CANCELED"])
def test_a_job_that_is_over_is_not_run_again(desk: Desk, end: str) -> None:
    desk.new(*ECHO)
    desk.ok(*(("job", "run") if end == "SUCCESS" else ("job", "cancel")), "demo")
    before = desk.digest()
    ran = desk("job", "run", "demo", "--json")
    assert ran.code == (0 if end == "SUCCESS" else 1)
    said = ran.json()
    assert (said["applied"], said["detail"]) == (False, f"demo is already in terminal state {end}")
    assert desk.digest() == before


def test_a_run_stops_for_a_person_and_says_what_to_do(desk: Desk) -> None:
    desk.new("--worker", desk.script(STUCK, DONE), "--activate")
    ran = desk("job", "run", "demo")
    assert ran.code == 1
    last = ran.out.splitlines()[-5:]
    assert last == [
        "demo is INTERVENTION_REQUIRED",
        "why: Which port is meant?",
        'next: holdfast job steward demo answer --guidance "…"',
        'or: holdfast job steward demo continue --guidance "…"',
        "or: holdfast job steward demo halt",
    ]
    assert desk.queue() == []
    desk.ok("job", "steward", "demo", "continue", "--guidance", "Port 8080")
    assert desk.queue() == ["demo"]
    assert desk.ran()["status"] == "SUCCESS"


def test_a_supervisor_sends_the_work_back_with_its_words(desk: Desk) -> None:
    worker, supervisor = desk.script(DONE, DONE), desk.script(AGAIN, DONE)
    desk.new("--worker", worker, "--supervisor", supervisor)
    assert desk.ran()["status"] == "SUCCESS"
    calls = desk.calls()
    phases = [call["request"]["metadata"]["phase"] for call in calls]
    assert phases == ["work", "review", "work", "review"]
    assert "The total is wrong." in calls[2]["request"]["prompt"]
    assert [call["response"]["new_status"] for call in calls] == [
        "REVIEWING",
        "PENDING",
        "REVIEWING",
        "SUCCESS",
    ]


def test_trying_again_too_often_asks_a_person(desk: Desk) -> None:
    told = desk.spec(
        prompt="P",
        phases=[{"name": "only", "max_retries": 2}],
        models={"worker": desk.script(AGAIN, AGAIN, AGAIN, DONE)},
    )
    desk.ok("job", "new", told, "--id", "demo")
    data = desk.ran(code=1)
    assert (data["status"], data["calls"]) == ("INTERVENTION_REQUIRED", 3)
    assert "only was tried again 2 times" in data["why"]
    desk.ok("job", "steward", "demo", "continue")
    assert desk.ran()["status"] == "SUCCESS"


def test_what_is_shown_while_a_job_runs_has_a_line_for_each_call(desk: Desk) -> None:
    desk.new("--worker", desk.script(AGAIN, DONE))
    lines = desk("job", "run", "demo").out.splitlines()
    assert [line.split("  ")[-2].strip().split()[0] for line in lines[:-1]] == [
        "asking",
        "worker",
        "asking",
        "worker",
    ]
    assert "try 2" in lines[2]
    assert lines[-1] == "demo is SUCCESS"


def test_json_is_one_document_whatever_a_job_does(desk: Desk) -> None:
    desk.new("--worker", desk.script(AGAIN, STUCK))
    ran = desk("job", "run", "demo", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["data"]["status"] == "INTERVENTION_REQUIRED"
    for verb in (("show", "demo"), ("list",), ("queue",), ("replay", "demo")):
        assert isinstance(json.loads(desk("job", *verb, "--json").out), dict)


def test_a_job_made_but_not_listed_is_found_all_the_same(desk: Desk) -> None:
    desk.new(*ECHO)
    for name in ("queue.jsonl", "index.json", ".index.json.view"):
        Path(desk.home / "jobs" / name).unlink()
    assert [row["job"] for row in desk.ok("job", "list")["rows"]] == ["demo"]
    desk.ok("job", "activate", "demo")
    assert desk.queue() == ["demo"]


@pytest.mark.parametrize("verb", ["activate", "run"])
def test_what_is_not_committed_in_the_source_is_told_to_be_left_behind(
    desk: Desk, verb: str
) -> None:
    source = desk.cwd / "source"
    as_ada = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    begin = ["git", *as_ada, "commit", "-qm", "Begin", "--allow-empty"]
    subprocess.run(begin, cwd=source, check=True)
    (source / "new.md").write_text("Not committed", encoding="utf-8")
    desk.new(*ECHO, "--source", "source")
    ran = desk("job", verb, "demo")
    assert ran.code == 0
    assert "1 " in ran.err and "not committed" in ran.err, ran.err
    assert not (desk.workspace() / "new.md").exists()


def test_a_draft_that_lacks_what_was_to_be_attached_is_not_run_without_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.cwd / "plan.md").write_text("the plan", encoding="utf-8")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.ops.job._attach", killed)
        words = ("--worker", desk.script(DONE), "--attach", str(desk.cwd / "plan.md"))
        desk("job", "new", "--prompt", "x", "--id", "demo", *words)
    assert desk.status() == "DRAFT"
    error = desk.refused("job", "run", "demo", says="'plan.md' attached, and has not")
    desk.ok(*error["hint"].split()[1:])
    assert desk.ran()["status"] == "SUCCESS"
