"""What is merged where scores are noisy, parts fall, lines conflict, or nothing ran."""

from __future__ import annotations

import json

from tests.improve.campaigns import Campaigns
from tests.improve.test_planning import CHEAP
from tests.jobs.desk import PYTHON
from tests.workspace.test_workspace import git

NOISY = """\
import os, random, sys
sys.path.insert(0, ".")
import solve
rng = random.Random(os.environ["HOLDFAST_SEED"] + str(solve.FACTOR))
print(100 + solve.FACTOR + rng.gauss(0, 2))
"""
PARTS = """\
import json, sys
sys.path.insert(0, ".")
import solve
part = getattr(solve, "PART", 100)
print(json.dumps({"primary": solve.FACTOR, "sub_scores": {"part": part, "none": None}}))
"""
PYTHON_TASK = """\
def evaluate(path):
    import importlib.util
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": module.solve(1), "other": 1.0}
"""


def bench(desk: Campaigns, text: str, *words: str, format: str = "number") -> None:
    """A campaign with a benchmark of its own."""
    (desk.source / "bench/own.py").write_text(text)
    git(desk.source, "add", "-A")
    git(desk.source, "commit", "-qm", "a benchmark")
    desk.init("--format", format, *words, benchmark=f"{PYTHON} bench/own.py")


def test_noise_is_measured_and_no_change_is_merged_for_it(desk: Campaigns) -> None:
    bench(desk, NOISY, "--planners", "2")
    assert desk.file("tracking/baseline.json")["noise_sd"] > 0.3
    assert desk.file("tracking/baseline.json")["runs"] == 5
    # As good as before, and far better.
    desk.play({"executor_1": {"factor": "3.0001"}, "executor_2": {"factor": 23}})
    data = desk.loop("--rounds", "1")
    report = desk.report(1)
    assert report["winner"]["executor_id"] == "executor_2"
    assert abs(data["best"] - 123) < 3
    assert report["re_benchmark_score"] == data["best"]
    pairs = {each["step"] for each in desk.journal("done") if each["step"].startswith("pair/")}
    assert len(pairs) >= 16, "8 pairs at least"
    assert "FACTOR = 23" in desk.solve()


def test_a_lucky_run_is_not_merged(desk: Campaigns) -> None:
    bench(desk, NOISY, "--planners", "3")
    desk.play({f"executor_{at}": {"factor": f"3.{at:06}"} for at in (1, 2, 3)})
    desk.loop("--rounds", "1")
    report = desk.report(1)
    assert (report["winner"], report["re_benchmark_score"]) == (None, None)
    assert report["status"] in ("no_improvement", "no_winner") and report["reason"]
    assert desk.solve() == git(desk.source, "show", "main:solve.py")


def test_a_gain_that_a_part_pays_for_is_rejected(desk: Campaigns) -> None:
    bench(desk, PARTS, "--planners", "2", format="json")
    script = {"executor_1": {"factor": 9, "sh": "echo 'PART = 92' >> solve.py"},
              "executor_2": {"factor": 5, "sh": "echo 'PART = 96' >> solve.py"}}  # fmt: skip
    desk.play(script)
    desk.loop("--rounds", "1")
    report = desk.report(1)
    assert (report["winner"]["executor_id"], report["regressions_detected"]) == ("executor_2", True)
    assert report["winner"]["sub_scores"] == {"part": 96, "none": None}
    told = next(each for each in desk.history(1)["losers"])["failure_analysis"]
    assert told["category"] == "regression" and "part" in told["what"]


def test_candidates_that_conflict_are_left_out(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "2", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 5}, "executor_2": {"factor": 4}})
    desk.loop("--rounds", "1")
    assert "stacked" not in desk.report(1)
    told = desk.history(1)["losers"][0]["failure_analysis"]
    assert "conflicts" in told["what"] and "solve.py" in told["what"]


def test_lines_that_never_ran_earn_nothing(desk: Campaigns) -> None:
    text = "import random, solve\nprint(len(open('solve.py').read()))\n"
    bench(desk, f"import sys; sys.path.insert(0, '.')\n{text}", "--planners", "1")
    desk.play({"executor_1": {"sh": "sed -i 's/return x + 1/return x + 1000000/' solve.py"}})
    desk.loop("--rounds", "1")
    report = desk.report(1)
    assert report["status"] == "no_improvement" and "never ran" in report["reason"]
    assert desk.solve() == git(desk.source, "show", "main:solve.py")


def test_a_task_of_openevolve_runs_unchanged(desk: Campaigns) -> None:
    (desk.source / "evaluator.py").write_text(PYTHON_TASK)
    (desk.source / "initial_program.py").write_text("def solve(x):\n    return x + 1\n")
    git(desk.source, "add", "-A")
    git(desk.source, "commit", "-qm", "a task")
    desk.init("--format", "python", "--metric", "combined_score", "--planners", "1",
              "--sealed", "evaluator.py",
              benchmark=f"{PYTHON} evaluator.py initial_program.py")  # fmt: skip
    desk.play({"executor_1": {"sh": "sed -i 's/x + 1/x + 41/' initial_program.py"}})
    assert desk.loop("--rounds", "1")["best"] == 42


def test_a_cheap_screen_stands_before_the_benchmark(desk: Campaigns) -> None:
    screen = "grep -c '' solve.py"
    desk.init("--format", "number", "--planners", "2", "--screen", screen, benchmark=CHEAP)
    desk.play(
        {"executor_1": {"factor": 9, "sh": "sed -i '$d' solve.py"}, "executor_2": {"factor": 4}}
    )
    data = desk.loop("--rounds", "1")
    assert desk.report(1)["winner"]["executor_id"] == "executor_2"
    assert desk.result(1, 1)["status"] == "regression"
    assert "the screen" in desk.result(1, 1)["failure_analysis"]["what"]
    assert data["evaluations"] == 5 + 2 + 2


def test_older_candidates_are_built_on_where_there_is_a_population(desk: Campaigns) -> None:
    desk.init(
        "--format", "number", "--planners", "3", "--population", "4", "--seed", "5", benchmark=CHEAP
    )
    desk.play(
        {f"{n}/executor_{at}": {"factor": 3 + n + at / 10} for n in (1, 2, 3) for at in (1, 2, 3)}
    )
    data = desk.loop("--rounds", "3")
    assert data["best"] == 6.3 and len(data["population"]) <= 4
    parents = {row["parent"] for row in data["rows"] if row["iteration"] > 1}
    heads = {each["head"] for each in desk.journal("round")}
    assert parents - heads, "somebody built on a candidate that was not merged"
    first = git(desk.source, "log", "--first-parent", "--format=%s", "improve/sort_faster")
    assert first.count("Iteration") == 3


def test_the_hold_out_is_opened_once_and_nobody_reads_it_before(desk: Campaigns) -> None:
    secret = "echo 4711; sed -n 's/FACTOR = /471100815/p' solve.py"
    words = ("--format", "number", "--planners", "1", "--holdout", secret)
    assert "4711008153" not in json.dumps(desk.init(*words, benchmark=CHEAP))
    assert "4711008153" not in (desk.home / "improve/sort/journal.jsonl").read_text()
    assert desk("improve", "finalize", "sort").code == 1  # there is nothing to review
    desk.play({"executor_1": {"factor": 4}})
    desk.loop("--rounds", "1")
    assert "4711008154" not in (desk.home / "improve/sort/journal.jsonl").read_text()
    before = desk.seen()
    ran = desk("improve", "finalize", "sort", "--json")
    assert ran.code == 0, ran.err
    opened = {"base": 4711008153, "result": 4711008154, "failure": None}
    assert ran.json()["data"]["holdout"] == opened
    assert (
        git(desk.source, "log", "--format=%s", "main..review/sort_faster") == "Sort faster: 3 → 4"
    )
    assert git(desk.source, "diff", "improve/sort_faster", "review/sort_faster") == ""
    assert desk.seen() == before
    again = desk("improve", "finalize", "sort", "--json").json()["data"]
    assert again["holdout"]["result"] == 4711008154
    assert "hold-out" in desk.loop("--rounds", "1", code=1)["message"]


def test_a_hold_out_that_fails_is_named_and_no_round_is_under_way_any_more(
    desk: Campaigns,
) -> None:
    fails = "grep -q 'FACTOR = 3' solve.py || exit 3; echo 1"
    desk.init("--format", "number", "--planners", "1", "--holdout", fails, benchmark=CHEAP)
    desk.play({"1/executor_1": {"factor": 4}, "2/executor_1": {"factor": 5}})
    desk.loop("--rounds", "1")
    desk.loop("--rounds", "1", "--eval-budget", "0", code=1)
    ran = desk("improve", "finalize", "sort", "--skip-control")
    assert "hold-out the benchmark ended with exit code 3" in ran.out
    assert "exit code 3" in desk("improve", "report", "sort").out
    status = desk("improve", "status", "sort").out
    assert status.startswith("sort is finalized\n") and "in round" not in status


def test_a_campaign_without_a_hold_out_is_finalized_without_one(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 4}})
    desk.loop("--rounds", "1")
    assert desk("improve", "finalize", "sort", "--skip-control").code == 0
    assert desk.loop("--rounds", "1", code=1)["message"] == "sort is finalized"


def test_what_an_executor_reports_breaks_no_message_and_no_terminal(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 4, "reply": {"hypothesis": "Four\n\n# \x1b[2Jis more"}}})
    desk.loop("--rounds", "1")
    assert "\x1b" not in desk("improve", "report", "sort").out
    desk("improve", "finalize", "sort", "--skip-control")
    body = git(desk.source, "log", "-1", "--format=%b", "review/sort_faster")
    assert body.splitlines()[-1] == "- round 1: Four # \x1b[2Jis more (4)"


def test_two_campaigns_of_one_repository_keep_tags_of_their_own(desk: Campaigns) -> None:
    for topic, objective, factor in (("sort", "Sort faster", 1), ("pack", "Pack tighter", 2)):
        desk.init("--format", "number", "--planners", "1", "--topic", topic, "--objective",
                  objective, benchmark=CHEAP)  # fmt: skip
        desk.play({"executor_1": {"factor": factor}})
        assert desk("improve", "run", topic, "--rounds", "1").code == 0
        assert "unknown for 1 call |" in desk("improve", "report", topic).out
    for name, factor in (("sort_faster", 1), ("pack_tighter", 2)):
        assert f"FACTOR = {factor}" in desk.solve(f"archive/{name}/round_1_executor_1")


def test_losers_are_found_by_their_tags_after_a_collection(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "2", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 5}, "executor_2": {"factor": 1}})
    desk.loop("--rounds", "1")
    git(desk.source, "gc", "-q", "--prune=now")
    assert "FACTOR = 1" in desk.solve("archive/sort_faster/round_1_executor_2")
    rows = json.loads((desk.home / "improve/sort/tracking/raw_data.json").read_bytes())
    assert [row["benchmark_score"] for row in rows] == [5, 1]
