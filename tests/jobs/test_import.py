"""Jobs of another system, brought into a home: as they were, once, with nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.job_history import HISTORY
from holdfast.contracts.job_lines import MANIFEST
from holdfast.errors import StorageError
from holdfast.interop import jobs as adopt
from holdfast.jobs.history import show
from holdfast.jobs.job import Job
from holdfast.jobs.replay import Differs, NothingToReplay
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from holdfast.testing import Turner, refused
from tests.ledger.shell import Verbs, on_its_own
from tests.ops.foreign import put, snapshot


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", timezone="UTC")
    return made


def manifest(status: str = "SUCCESS", **more: Any) -> dict[str, Any]:
    return {
        "job_id": "demo",
        "description": "Port the parser",
        "status": status,
        "current_phase": "review",
        "metrics": {"cumulative_cost": 12.5, "cumulative_time_seconds": 340.2, "ticks": 3},
        "history": [
            {"timestamp": "2026-01-02T10:00:00Z", "role": "Worker", "action": "COMPLETED", "by": 7}
        ],
        "phases": [
            {"name": "build", "role": "Worker", "worker_instructions": "Make it.", "hint": "x"},
            {"name": "review", "role": "Supervisor"},
        ],
        "prompt": "Port the parser.",
        "nextSteps": ["ship it"],
        **more,
    }


def call(number: int, action: str = "COMPLETED") -> dict[str, Any]:
    """One call as the bare array has it; naive times, unknown keys."""
    return {
        "timestamp": f"2026-01-02T10:0{number}:00",
        "model": "small-1",
        "cost": 0.25,
        "execution_time_seconds": 3.5,
        "request": {"operation": "step", "job_id": "demo", "phase": "build", "role": "Worker"},
        "response": {
            "action": action,
            "evidence_files": ["src/parser.py"],
            "summary_for_supervisor": f"Step {number}.",
            "mood": "fine",
        },
        "ticket": f"T-{number}",
    }


def told(number: int, action: str = "COMPLETED") -> dict[str, Any]:
    """The same call as the object has it."""
    bare = call(number, action)
    request, response = dict(bare["request"]), dict(bare["response"])
    settings = {"role": request.pop("role"), "phase": request.pop("phase"), "model": bare["model"]}
    return {
        "sequence": number,
        "timestamp": bare["timestamp"],
        "state_before": None,
        "workspace_path": None,
        "request": {
            **request,
            "prompt": None,
            "files_context": [],
            "metadata": {**settings, "temperature": None, "max_tokens": None},
        },
        "response": {
            "status": "SUCCESS",
            "raw_response": None,
            **response,
            "execution_time_seconds": bare["execution_time_seconds"],
            "cost_usd": bare["cost"],
        },
        "ticket": bare["ticket"],
    }


def recorded(*calls: dict[str, Any]) -> dict[str, Any]:
    whole = {"job_id": "demo", "created_at": "2026-01-02T09:00:00Z", "interactions": list(calls)}
    return {**whole, "recovery_points": []}


def job(
    tree: Path, name: str, value: Any, history: Any = None, file: str = "manifest.json"
) -> None:
    put(tree / name / file, value if isinstance(value, bytes) else json.dumps(value))
    if history is not None:
        raw = history if isinstance(history, bytes) else json.dumps(history)
        put(tree / name / "jobHistory.json", raw)


def folder(tree: Path, **jobs: Any) -> Path:
    for name, value in jobs.items():
        job(tree, name, value)
    index = {"current_job_id": None, "jobs": dict.fromkeys(jobs, "x"), "queue": list(jobs)}
    put(tree / "jobs_index.json", json.dumps(index))
    return tree


def states(found: Any) -> dict[str, str]:
    return {row["file"]: row["state"] for row in found.rows}


def shown(verbs: Verbs, name: str) -> dict[str, Any]:
    return verbs("job show", id=name).data


def histories(home: str) -> dict[str, Any]:
    """jobHistory.json of every job, made anew."""
    found: dict[str, Any] = {}
    with Home.open(home) as opened:
        for path in sorted(Path(home, "jobs").iterdir()):
            if path.is_dir():
                with Job(opened, path.name) as one:
                    show(one)
                found[path.name] = json.loads((path / "jobHistory.json").read_bytes())
    return found


# --- as it was ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["manifest.json", "job_manifest.json"])
def test_jobs_are_in_the_state_that_they_had(verbs: Verbs, tmp_path: Path, file: str) -> None:
    tree = folder(tmp_path / "their jobs")
    had = ("SUCCESS", "INTERVENTION_REQUIRED", "DRAFT", "HALTED_COST", "PENDING", "CANCELED")
    for number, status in enumerate(had):
        job(tree, f"job-{number}", manifest(status, job_id=f"job-{number}"), file=file)
    before = snapshot(tree)
    found = verbs("import", src=str(tree))
    assert found.counts["layout"] == "logist"
    assert [row["status"] for row in verbs.rows("job list")] == list(had)
    assert snapshot(tree) == before


THEIRS = {
    "SUSPENDED": ("PENDING", "suspended"),
    "APPROVAL_REQUIRED": ("REVIEWING", "approval"),
    "HALTED_ITERATION": ("INTERVENTION_REQUIRED", "iterations"),
    "EXECUTING": ("INTERVENTION_REQUIRED", None),
    "RUNNING": ("INTERVENTION_REQUIRED", None),
    "FAILED": ("INTERVENTION_REQUIRED", None),
}


def test_states_of_others_become_ours_and_keep_their_name(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree", **{name: manifest(name, job_id=name) for name in THEIRS})
    verbs("import", src=str(tree))
    for theirs, ours in THEIRS.items():
        told = shown(verbs, theirs)
        assert (told["status"], told["hold"]) == ours
        kept = json.loads(Path(verbs.path, f"jobs/{theirs}/manifest.json").read_bytes())
        assert (kept["status"], kept["foreign_status"]) == (ours[0], theirs)
        assert not [each for each in MANIFEST.read(kept).findings if each.level == "error"]
        if theirs in ("RUNNING", "EXECUTING"):
            assert f"it was {theirs}" in told["why"] and "may have had an effect" in told["why"]
    verbs("job steward", id="EXECUTING", decision="continue", guidance="Look again.")
    assert shown(verbs, "EXECUTING")["status"] == "PENDING"


def test_amounts_are_cents_and_it_is_said(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree", demo=manifest(cost_threshold=2000, time_threshold_minutes=30))
    found = verbs("import", src=str(tree))
    assert "cost_threshold 2000 is in cents: 20.00 USD" in found.rows[0]["detail"]
    told = shown(verbs, "demo")
    assert told["origin"]["units"]["cost_threshold"] == "cents"
    assert told["limits"]["max_cost_usd"] == 20.0 and told["limits"]["max_seconds"] == 1800.0
    assert told["cost_usd"] == 0.125
    kept = json.loads(Path(verbs.path, "jobs/demo/manifest.json").read_bytes())
    assert kept["cost_threshold"] == 2000 and kept["metrics"]["cumulative_cost"] == 12.5


def test_both_forms_of_the_history_give_the_same_calls(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    numbers = range(3)
    job(tree, "bare", manifest(), [call(number) for number in numbers])
    whole = {"job_id": "demo", "created_at": None, "interactions": [told(n) for n in numbers]}
    job(tree, "object", manifest(), whole)
    from_one = [{**told(number), "sequence": number + 1} for number in numbers]
    job(tree, "from-one", manifest(), {**whole, "interactions": from_one})
    verbs("import", src=str(tree))
    found = histories(verbs.path)
    assert found["bare"]["interactions"] == found["object"]["interactions"]
    assert found["bare"]["interactions"] == found["from-one"]["interactions"]
    assert [each["sequence"] for each in found["bare"]["interactions"]] == [0, 1, 2]
    for each in found.values():
        read = HISTORY.read(each)
        assert not [finding for finding in read.findings if finding.level == "error"]


def test_a_list_of_calls_as_the_object_has_them_is_taken_too(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "listed", manifest(), [told(0), told(1)])
    job(tree, "object", manifest(), recorded(told(0), told(1)))
    came = states(verbs("import", src=str(tree)))
    assert came["listed/jobHistory.json"] == came["object/jobHistory.json"] != "quarantined"
    found = histories(verbs.path)
    assert found["listed"]["interactions"] == found["object"]["interactions"] != []


def test_what_is_unknown_survives(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    point = {"id": "half", "sequence": 0, "resume_phase": "review", "colour": "green"}
    whole = {
        "job_id": "demo",
        "created_at": "2026-01-02T09:00:00Z",
        "interactions": [told(0), told(1)],
        "recovery_points": [point],
        "exported_by": "somebody",
    }
    job(tree, "demo", manifest(), whole)
    verbs("import", src=str(tree))
    calls = verbs("job history", id="demo", format="json").data["interactions"]
    assert [each["ticket"] for each in calls] == ["T-0", "T-1"]
    assert len(verbs.rows("job history", id="demo")) == 2
    assert "Step 1." in verbs("job history", id="demo", format="html").data["html"]
    history = histories(verbs.path)["demo"]
    assert history["exported_by"] == "somebody"
    assert history["created_at"] == "2026-01-02T09:00:00Z"
    assert history["interactions"][1]["ticket"] == "T-1"
    assert history["interactions"][1]["response"]["mood"] == "fine"
    assert history["recovery_points"][0]["colour"] == "green"
    kept = json.loads(Path(verbs.path, "jobs/demo/manifest.json").read_bytes())
    assert kept["nextSteps"] == ["ship it"] and kept["metrics"]["ticks"] == 3
    assert kept["phases"][0]["hint"] == "x" and kept["history"][0]["by"] == 7
    assert kept["phases"][0]["worker_instructions"] == "Make it."


def test_calls_of_ours_are_counted_on(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    roles = {"worker": "scripted:echo", "supervisor": "scripted:echo"}
    job(tree, "demo", manifest("PENDING", roles=roles, current_phase="build"), [call(0), call(1)])
    verbs("import", src=str(tree))
    verbs("job run", id="demo")
    calls = histories(verbs.path)["demo"]["interactions"]
    assert [each["sequence"] for each in calls] == [0, 1, 2, 3]
    assert [each["response"]["new_status"] for each in calls] == [
        None,
        None,
        "REVIEWING",
        "SUCCESS",
    ]
    assert "Step 1." in calls[2]["request"]["prompt"]
    assert verbs("job replay", id="demo").data["status"] == "SUCCESS"


# --- once -----------------------------------------------------------------------------------


def with_states(*states: str) -> list[dict[str, Any]]:
    """Calls that say in which states they found and left the job."""
    made = [told(number) for number in range(len(states) - 1)]
    for call, before, then in zip(made, states, states[1:], strict=False):
        answer = {name: call["response"][name] for name in SAID}
        call["state_before"] = before
        call["response"] |= {"new_status": then, "raw_response": json.dumps(answer)}
    return made


SAID = ("action", "evidence_files", "summary_for_supervisor")


def test_calls_of_another_system_are_replayed(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), recorded(*with_states("PENDING", "REVIEWING", "SUCCESS")))
    verbs("import", src=str(tree))
    found = verbs("job replay", id="demo").data
    assert (found["calls"], found["unproven"]) == (2, 0)
    assert verbs("job replay", id="demo", until=1).data["calls"] == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state_before": "PENDING"}, "state_before: PENDING where the states allow REVIEWING"),
        ({"sequence": 7}, "7 where 1 follows"),
        ({"response": {"action": "RETRY"}}, "PENDING after RETRY"),
        ({"response": {"new_status": "DRAFT"}}, "new_status: DRAFT where the states allow"),
        ({"response": {"raw_response": '{"action": "COMPLETED"}'}}, "differs from raw_response"),
    ],
)
def test_a_falsified_history_of_another_system_is_named(
    verbs: Verbs, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    calls = with_states("PENDING", "REVIEWING", "SUCCESS")
    response = calls[1]["response"] | change.get("response", {})
    calls[1] |= {**change, "response": response}
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), recorded(*calls))
    rows = verbs("import", src=str(tree)).rows
    (detail,) = (row["detail"] for row in rows if row["file"] == "demo/jobHistory.json")
    assert "its states do not follow" in detail
    with refused(Differs, says):
        verbs("job replay", id="demo")


def test_calls_of_which_nothing_was_recorded_are_not_said_to_follow(
    verbs: Verbs, tmp_path: Path
) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), recorded(told(0), told(1)))
    verbs("import", src=str(tree))
    with refused(NothingToReplay, "2 imported calls without answers or states"):
        verbs("job replay", id="demo")


def test_the_same_import_twice_adds_nothing(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), [call(0)])
    verbs("import", src=str(tree))
    before = Path(verbs.path, "jobs/demo/history.jsonl").read_bytes()
    again = states(verbs("import", src=str(tree)))
    assert again["demo/manifest.json"] == again["demo/jobHistory.json"] == "known"
    assert Path(verbs.path, "jobs/demo/history.jsonl").read_bytes() == before
    assert len(verbs.rows("job list")) == 1


def test_one_that_has_changed_since_is_left_alone(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree", demo=manifest("PENDING"))
    verbs("import", src=str(tree))
    job(tree, "demo", manifest("SUCCESS"))
    found = verbs("import", src=str(tree))
    assert states(found)["demo/manifest.json"] == "skipped"
    assert "imported before, from other files" in found.rows[0]["detail"]
    assert shown(verbs, "demo")["status"] == "PENDING"


def test_a_job_of_the_home_is_never_replaced(verbs: Verbs, tmp_path: Path) -> None:
    verbs("job new", prompt="Ours.", id="demo", worker="scripted:echo")
    found = verbs("import", src=str(folder(tmp_path / "tree", demo=manifest())))
    assert "a job demo is there already" in found.rows[0]["detail"]
    assert shown(verbs, "demo")["status"] == "DRAFT"


@pytest.mark.parametrize("times", [1, 3, 5])
def test_an_import_that_was_cut_off_is_completed(
    verbs: Verbs, tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "_LINES_AT_ONCE", 1)
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), [call(number) for number in range(4)])
    met = 0

    def die() -> None:
        nonlocal met
        met += 1
        if met == times:
            raise StorageError("the machine is gone", hint="")

    with armed("job.written", die), pytest.raises(StorageError):
        verbs("import", src=str(tree))
    assert shown(verbs, "demo")["status"] == "DRAFT"
    assert set(states(verbs("import", src=str(tree))).values()) == {"taken", "repaired", "skipped"}
    assert shown(verbs, "demo")["status"] == "SUCCESS"
    assert [each["ticket"] for each in histories(verbs.path)["demo"]["interactions"]] == [
        "T-0",
        "T-1",
        "T-2",
        "T-3",
    ]


def test_a_dry_run_writes_nothing(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), [call(0)])
    before = {str(each) for each in Path(verbs.path).rglob("*")}
    found = verbs("import", src=str(tree), dry_run=True)
    assert states(found)["demo/manifest.json"] == "taken"
    assert {str(each) for each in Path(verbs.path).rglob("*")} == before


# --- nothing lost, nothing believed ---------------------------------------------------------


def test_files_are_kept_byte_for_byte_and_watched(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    raw = json.dumps(manifest(), indent=7).encode() + b"\n\n"
    job(tree, "demo", raw, [call(0)])
    verbs("import", src=str(tree))
    kept = sorted(Path(verbs.path, "jobs/demo/imported").glob("manifest.json.sealed-*"))
    assert [each.read_bytes() for each in kept] == [raw]
    assert verbs("check").exit_code == 0
    kept[0].write_bytes(raw.replace(b"SUCCESS", b"PENDING"))
    found = verbs("check")
    assert found.exit_code != 0 and any(row["kind"] == "edited" for row in found.rows)


DAMAGED = {
    "empty": (b"", "empty"),
    "torn": (b'{"job_id": "demo", "stat', ""),
    "array": (b"[1, 2]", ""),
    "unknown": (b'{"job_id": "demo", "status": "BOGUS", "metrics": {}}', "status"),
    "twice": (
        json.dumps(manifest(phases=[{"name": "a"}, {"name": "a"}])).encode(),
        "name of its own",
    ),
}


def test_a_damaged_manifest_is_kept_and_told(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree", good=manifest())
    for name, (raw, _) in DAMAGED.items():
        job(tree, name, raw, [call(0)])
    found = verbs("import", src=str(tree))
    assert found.exit_code == 1
    calls = histories(verbs.path)
    for name, (raw, why) in DAMAGED.items():
        assert states(found)[f"{name}/manifest.json"] == "quarantined"
        told = shown(verbs, name)
        assert told["status"] == "INTERVENTION_REQUIRED" and why in told["why"]
        assert "could not be read" in told["why"]
        kept = next(Path(verbs.path, f"jobs/{name}/imported").glob("manifest.json.sealed-*"))
        assert kept.read_bytes() == raw
        assert len(calls[name]["interactions"]) == 1
    assert shown(verbs, "good")["status"] == "SUCCESS"


def test_a_damaged_history_does_not_hide_the_job(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), b'[{"timestamp": "2026')
    found = verbs("import", src=str(tree))
    assert states(found)["demo/jobHistory.json"] == "quarantined"
    assert shown(verbs, "demo")["status"] == "SUCCESS"


def lacking(number: int, *path: str) -> dict[str, Any]:
    """A call without one of its fields."""
    made = told(number)
    holder = made
    for name in path[:-1]:
        holder = holder[name]
    del holder[path[-1]]
    return made


@pytest.mark.parametrize(
    "field", [("workspace_path",), ("state_before",), ("request", "metadata", "temperature")]
)
def test_what_a_call_does_not_say_is_unknown_and_the_call_is_taken(
    verbs: Verbs, tmp_path: Path, field: tuple[str, ...]
) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "demo", manifest(), recorded(lacking(0, *field), lacking(1, *field)))
    found = verbs("import", src=str(tree))
    (row,) = [each for each in found.rows if each["file"] == "demo/jobHistory.json"]
    assert row["state"] == "repaired"
    assert f"interactions[0].{'.'.join(field)} and 1 more" in row["detail"]
    assert [each["sequence"] for each in histories(verbs.path)["demo"]["interactions"]] == [0, 1]


@pytest.mark.parametrize("bare", [True, False])
def test_a_call_that_nothing_can_be_made_of_does_not_take_the_others_with_it(
    verbs: Verbs, tmp_path: Path, bare: bool
) -> None:
    tree = folder(tmp_path / "tree")
    odd = [{**call(0), "timestamp": "noon"}, call(1), call(2)]
    value = odd if bare else recorded(lacking(0, "timestamp"), told(1), told(2))
    job(tree, "demo", manifest(), value)
    found = verbs("import", src=str(tree))
    (row,) = [each for each in found.rows if each["file"] == "demo/jobHistory.json"]
    assert row["state"] == "repaired"
    assert "1 calls could not be read" in row["detail"]
    calls = histories(verbs.path)["demo"]["interactions"]
    assert [each["response"]["summary_for_supervisor"] for each in calls] == ["Step 1.", "Step 2."]


def large(**more: Any) -> dict[str, Any]:
    """A manifest with a trail beyond what a line can hold."""
    step = {"timestamp": "2026-01-02T10:00:00Z", "role": "Worker", "summary": "x" * 1000}
    return manifest(history=[{**step, "action": str(number)} for number in range(9000)], **more)


def test_a_trail_that_no_line_can_hold_is_cut_and_the_other_jobs_come_too(
    verbs: Verbs, tmp_path: Path
) -> None:
    found = verbs("import", src=str(folder(tmp_path / "tree", demo=large(), later=manifest())))
    assert states(found)["demo/manifest.json"] == "taken"
    (detail,) = (row["detail"] for row in found.rows if row["file"] == "demo/manifest.json")
    assert "oldest entries of its history are in the copy only" in detail
    kept = json.loads(Path(verbs.path, "jobs/demo/manifest.json").read_bytes())["history"]
    assert 500 < len(kept) < 1100 and kept[-1]["action"] == "8999"
    assert {shown(verbs, name)["status"] for name in ("demo", "later")} == {"SUCCESS"}


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        ({"manifest": {"essay": "x" * (9 << 20)}}, "manifest.json"),
        ({"manifest": {"prompt": "x" * (9 << 20)}}, "manifest.json"),
        ({"history": {"essay": "x" * (9 << 20)}}, "jobHistory.json"),
    ],
)
def test_what_no_line_can_hold_is_set_aside_before_anything_is_written(
    verbs: Verbs, tmp_path: Path, damage: dict[str, Any], file: str
) -> None:
    tree = folder(tmp_path / "tree", later=manifest())
    calls = recorded(told(0)) | damage.get("history", {})
    job(tree, "demo", manifest(**damage.get("manifest", {})), calls)
    found = verbs("import", src=str(tree))
    others = {"manifest.json", "jobHistory.json"} - {file}
    assert states(found)[f"demo/{file}"] == "quarantined"
    assert states(found)[f"demo/{others.pop()}"] != "quarantined"
    assert shown(verbs, "demo")["status"] != "DRAFT"
    assert shown(verbs, "later")["status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("status", "here", "hold"),
    [
        ("PENDING", "REVIEWING", "approval"),
        ("REVIEWING", "REVIEWING", "approval"),
        ("INTERVENTION_REQUIRED", "INTERVENTION_REQUIRED", None),
    ],
)
def test_what_waits_for_approval_can_be_decided(
    verbs: Verbs, tmp_path: Path, status: str, here: str, hold: str | None
) -> None:
    verbs("import", src=str(folder(tmp_path / "tree", demo=manifest(status, hold="approval"))))
    told = shown(verbs, "demo")
    assert (told["status"], told["hold"]) == (here, hold)
    verbs("job steward", id="demo", decision="approve" if hold else "halt")
    assert shown(verbs, "demo")["status"] == ("SUCCESS" if hold else "CANCELED")


def test_calls_of_the_same_number_get_numbers_of_their_own(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    twice = [told(0), {**told(1), "sequence": 0}, {**told(2), "sequence": 1}]
    job(tree, "demo", manifest(), recorded(*twice))
    found = verbs("import", src=str(tree))
    (detail,) = (row["detail"] for row in found.rows if row["file"] == "demo/jobHistory.json")
    assert "calls had the same number" in detail
    calls = histories(verbs.path)["demo"]["interactions"]
    assert [(each["sequence"], each["ticket"]) for each in calls] == [
        (0, "T-0"),
        (1, "T-1"),
        (2, "T-2"),
    ]


def test_names_that_could_lead_elsewhere_are_mapped(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree")
    job(tree, "Größe & Co", manifest(job_id="../../evil", files=["../../etc/passwd", "a.py"]))
    found = verbs("import", src=str(tree))
    (row,) = verbs.rows("job list")
    assert row["job"].startswith("gro-e-co-") or row["job"].startswith("grosse-co-")
    told = shown(verbs, row["job"])
    assert told["origin"]["name"] == "Größe & Co"
    assert told["spec"]["files"] == ["a.py"]
    assert "../../etc/passwd" in found.rows[0]["detail"]
    assert not Path(verbs.path).parent.joinpath("evil").exists()


def test_jobs_that_lie_elsewhere_are_told(verbs: Verbs, tmp_path: Path) -> None:
    tree = folder(tmp_path / "tree", demo=manifest())
    index = {"current_job_id": "far", "jobs": {"demo": "demo", "far": "/elsewhere"}, "queue": []}
    put(tree / "jobs_index.json", json.dumps(index))
    found = verbs("import", src=str(tree))
    assert "no folder here: far" in next(
        row["detail"] for row in found.rows if row["part"] == "jobs"
    )
