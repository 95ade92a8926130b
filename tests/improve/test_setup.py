"""Set-up: places, trust, noise, and repositories that are not what one expects."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadName
from holdfast.improve.files import ideas_in, in_scope
from holdfast.improve.journal import place_of, slugify
from tests.improve.campaigns import Campaigns
from tests.improve.test_planning import CHEAP
from tests.workspace.test_workspace import git


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Latency & Throughput", "latency-throughput"),
        ("  --Foo__Bar\n   baz--", "foo-bar-baz"),
        ("Café crème", "cafe-creme"),
        ("日本語", "default"),
        ("a/b/../../c", "a-b-c"),
        ("v1.2", "v1-2"),
        ("", "default"),
    ],
)
def test_a_topic_becomes_the_name_of_a_folder(text: str, slug: str) -> None:
    assert slugify(text) == slug
    assert place_of(text).root == f"improve/{slug}"


@pytest.mark.parametrize("session", ["../../evil", "a/b", "x" * 300, "-a", " a"])
def test_a_session_id_leads_nowhere_else(session: str) -> None:
    with pytest.raises(BadName):
        place_of("sort", session)


def test_sessions_of_one_topic_have_files_and_branches_of_their_own(desk: Campaigns) -> None:
    for session in ("one", "two"):
        desk.init("--session-id", session)
    assert place_of("sort@one").root == place_of("sort", "one").root == "improve/sort/sessions/one"
    assert {
        "refs/heads/improve/sort_faster_one",
        "refs/heads/improve/sort_faster_two",
    } <= desk.refs()
    desk.play({"executor_1": {"factor": 4}})
    assert desk("improve", "run", "sort@one", "--rounds", "1").code == 0
    tops = [
        desk.home / f"improve/sort/sessions/{each}/tracking/raw_data.json"
        for each in ("one", "two")
    ]
    assert [len(json.loads(top.read_bytes())) for top in tops] == [3, 0]


def test_nothing_is_run_without_trust(desk: Campaigns) -> None:
    error = desk.init(
        "--format", "number", benchmark=f"touch {desk.place}/ran; echo 1", code=3, trust=False
    )
    assert "--trust" in error["hint"]
    assert not (desk.place / "ran").exists()
    assert desk.refs() == {"refs/heads/main"}
    assert not (desk.home / "improve/sort/journal.jsonl").exists()


def test_another_command_needs_trust_of_its_own(desk: Campaigns) -> None:
    desk.init("--format", "number", benchmark=CHEAP)
    words = ("improve", "set", "sort", "benchmark_command", "echo 7", "--json")
    assert "trusted" in desk(*words).error()["message"]
    assert desk(*words[:-1], "--trust").code == 0
    assert desk("improve", "status", "--json").json()["data"]["baseline"] == 7
    desk.play({"executor_1": {"factor": 4}})
    desk.loop("--rounds", "1")
    assert "depend" in desk(*words, "--trust").error()["message"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--planners", "0"), "number_of_agents"),
        (("--max-iterations", "0"), "max_iterations"),
        (("--population", "0"), "population"),
        (("--sealed", "../x"), "../x"),
        (("--planner", "nobody"), "nobody"),
        (("--executor", "patches:none.json"), "none.json"),
        (("--target-branch", "nowhere"), "nowhere"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(
    desk: Campaigns, words: tuple[str, ...], names: str
) -> None:
    ran = desk(
        "improve", "init", "--topic", "sort", "--repo", str(desk.source), "--benchmark",
        f"touch {desk.place}/ran; echo 1", "--trust", "--format", "number",
        *(() if "--planner" in words or "--executor" in words else ("--executor", "null")),
        *words, "--json",
    )  # fmt: skip
    assert ran.code in (2, 3, 4)
    error = ran.error()
    assert names in error["message"] and error["hint"]
    assert not (desk.place / "ran").exists()


def test_a_benchmark_that_does_not_work_makes_no_campaign(desk: Campaigns) -> None:
    error = desk.init(benchmark="echo nothing; exit 3", code=3)
    assert "does not work" in error["message"]
    assert "uncommitted" in error["hint"]
    assert desk.refs() == {"refs/heads/main"}
    assert desk("improve", "status", "sort").code == 4


def test_a_hold_out_that_does_not_work_makes_no_campaign(desk: Campaigns) -> None:
    error = desk.init("--format", "number", "--holdout", "exit 3", benchmark=CHEAP, code=3)
    assert "the hold-out does not work on the unchanged repository" in error["message"]
    assert desk.refs() == {"refs/heads/main"}


def test_the_branch_that_is_checked_out_is_made_better_unless_another_is_named(
    desk: Campaigns,
) -> None:
    git(desk.source, "checkout", "-q", "-b", "work")
    (desk.source / "solve.py").write_text("FACTOR = 7\n")
    git(desk.source, "commit", "-qam", "seven")
    words = ("--format", "number", "--objective")
    assert desk.init(*words, "Here", benchmark=CHEAP)["data"]["baseline"] == 7
    assert json.loads(desk.settings().read_text())["target_branch"] == "work"
    other = ("There", "--topic", "other", "--target-branch", "main")
    assert desk.init(*words, *other, benchmark=CHEAP)["data"]["baseline"] == 3


def test_a_second_campaign_of_one_name_or_one_branch_is_refused(desk: Campaigns) -> None:
    desk.init("--format", "number", benchmark=CHEAP)
    assert "exists" in desk.init("--format", "number", benchmark=CHEAP, code=1)["message"]
    ran = desk(
        "improve", "init", "--topic", "other", "--objective", "Sort faster", "--executor", "null",
        "--repo", str(desk.source), "--benchmark", CHEAP, "--format", "number", "--trust", "--json",
    )  # fmt: skip
    assert "branch improve/sort_faster" in ran.error()["message"]


def test_a_second_engine_waits_outside(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    nested = f"{desk.place}/nested"
    desk.play({"executor_1": {"sh": f"cat {nested} >/dev/null", "factor": 4}})
    os.mkfifo(nested)
    process = desk.started("--rounds", "1")
    with open(nested, "w", encoding="utf-8"):
        # The executor reads until this is closed, so the campaign is running.
        assert desk.loop("--rounds", "1", code=5)["code"] == "busy"
    process.communicate(timeout=60)
    assert process.returncode == 0


def detached(at: Path) -> str:
    git(at, "checkout", "-q", "--detach")
    return str(at)


def linked(at: Path) -> str:
    git(at, "worktree", "add", "-q", "-b", "work", str(at.parent / "linked"))
    return str(at.parent / "linked")


def bare(at: Path) -> str:
    git(at.parent, "clone", "-q", "--bare", str(at), "bare.git")
    return str(at.parent / "bare.git")


def shallow(at: Path) -> str:
    git(at, "commit", "-q", "--allow-empty", "-m", "more")
    git(at.parent, "clone", "-q", "--depth", "1", f"file://{at}", "shallow")
    return str(at.parent / "shallow")


@pytest.mark.parametrize("shape", [detached, linked, bare, shallow])
def test_repositories_of_other_shapes_work(desk: Campaigns, shape: Any) -> None:
    desk.source = Path(shape(desk.source))
    head = git(desk.source, "rev-parse", "HEAD")
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 4}})
    assert desk.loop("--rounds", "1")["best"] == 4
    assert git(desk.source, "rev-parse", "HEAD") == head
    assert "FACTOR = 4" in desk.solve()


def test_a_folder_without_commits_is_refused(desk: Campaigns, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q", "-b", "main")
    for place in ("empty", "."):
        desk.source = tmp_path / place
        assert desk.init(code=3)["hint"]


def test_warnings_come_before_the_first_round(desk: Campaigns) -> None:
    ran = desk("improve", "init", "--repo", str(desk.source), "--benchmark", "echo $HOLDFAST_SEED",
               "--format", "number", "--sealed", "nowhere/", "--planners", "9", "--trust",
               "--executor", desk.agent)  # fmt: skip
    assert ran.code == 0, ran.err
    for told in ("varies: 0, 1, 2, 3, 4", "nowhere/ matches no file", "9 planners and 8 families"):
        assert told in ran.err


def test_a_page_of_ideas_has_none_until_somebody_writes_one() -> None:
    page = "# Experiment Ideas\n\n<!-- One idea per section. -->\n"
    assert ideas_in(page) == []
    assert ideas_in(page + "\n## Cache\nKeep rows.\n\n## Sort\n") == ["Cache: Keep rows.", "Sort"]
    assert ideas_in(page + "Just do it.\n") == ["Just do it."]


def test_scopes_are_paths_folders_and_patterns() -> None:
    assert in_scope("any", [])
    assert in_scope("src/a.py", ["src/"]) and in_scope("src/a.py", ["src"])
    assert in_scope("src/a.py", ["src/**"]) and in_scope("a.py", ["*.py"])
    assert not in_scope("lib/a.py", ["src/"]) and not in_scope("a.pyc", ["*.py"])


def test_settings_are_written_whole(desk: Campaigns) -> None:
    desk.init("--format", "number", "--target", "9", benchmark=CHEAP)
    found = json.loads(desk.settings().read_text())
    assert (found["target_value"], found["number_of_agents"]) == (9, 3)
    assert found["sealed_files"] == ["bench/"]
