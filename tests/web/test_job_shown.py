"""What the pages of a job say of its files, its runner, its cost and where it comes from."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.agents.world import until
from tests.ledger.shell import PATIENCE, Shell
from tests.web.board import Board, page_of
from tests.web.errands import Errands, a_stuck_one, said

WRITES = """\
import json, pathlib
pathlib.Path("letter.txt").write_text("Dear all")
print(json.dumps({"action": "COMPLETED", "evidence_files": ["letter.txt"],
                  "summary_for_supervisor": "It is written."}))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Errands:
    made = Errands(Shell(tmp_path_factory.mktemp("shown")))
    made.verbs("init")
    return made


@pytest.fixture(scope="module")
def shell(made: Errands) -> Shell:
    return made.shell


def letter(made: Errands, id: str) -> Path:
    program = made.shell.place / f"{id}.py"
    program.write_text(WRITES, encoding="utf-8")
    made.spec(
        id,
        prompt="Write a letter",
        phases=[{"name": "write", "approval": True}, {"name": "send"}],
        models={"worker": f"command:{shlex.join([sys.executable, '-S', '-E', str(program)])}"},
    )
    assert made.run(id) == 1
    return Path(made.show(id)["workspace"]) / "letter.txt"


def test_the_button_of_a_page_does_not_approve_files_that_were_changed_since(
    made: Errands, board: Board
) -> None:
    file = letter(made, "letter")
    body = {"id": "letter", "decision": "approve", "shown": made.show("letter")["shown"]}
    assert body["shown"] in page_of(board, "/jobs/letter")
    file.write_text("tampered", encoding="utf-8")
    answer = board.post("/api/job/steward", body)
    assert (answer.status, answer.json()["error"]["code"]) == (409, "stale_approval")
    now = made.show("letter")["shown"]
    for path in ("/jobs/letter", "/decisions"):
        page = page_of(board, path)
        assert "Changed since the agent ended" in page and "<li>letter.txt</li>" in page
        assert now in page and body["shown"] not in page
    assert board.post("/api/job/steward", {**body, "shown": now}).status == 200


def test_costs_that_nobody_knows_and_a_runner_that_is_not_there_are_said_so(
    made: Errands, board: Board
) -> None:
    letter(made, "unpriced")
    page = page_of(board, "/jobs/unpriced")
    assert "$0.0000" not in page and "<dd>unknown<small>" in page
    assert "<dd>None" not in page and "nobody runs it" in page
    (row,) = [each for each in page_of(board, "/jobs").split("<tr") if "job-unpriced" in each]
    assert "unknown" in row and "$0.0000" not in row


def test_a_job_whose_runner_was_killed_says_how_it_goes_on(made: Errands, board: Board) -> None:
    made.make("slow", "Take your time", made.script("slow", said("COMPLETED", "Done", delay=600)))
    runner = made.shell.start("job", "run", "slow")
    try:
        until(lambda: made.show("slow")["status"] == "RUNNING")
        assert "runner is gone" not in page_of(board, "/jobs/slow")
        runner.send_signal(signal.SIGKILL)
        runner.wait(PATIENCE)
    finally:
        runner.kill()
        runner.communicate()
    for path in ("/jobs/slow", "/decisions"):
        page = page_of(board, path)
        assert "Its runner is gone; <code>holdfast job run slow</code> goes on." in page
    waits = len(made.verbs.rows("job list", waiting=True))
    assert f' aria-label="{waits} wait for you">' in page_of(board, "/")
    page = page_of(board, "/jobs/slow")
    assert "Nobody runs it at the moment" not in page
    assert "being asked" not in page


def test_a_job_that_was_replayed_names_the_one_it_comes_from(made: Errands, board: Board) -> None:
    a_stuck_one(made, "before")
    made.verbs("job replay", id="before", from_=0, model="scripted:echo")
    jobs = [row["job"] for row in made.verbs.rows("job list")]
    (new,) = [each for each in jobs if made.show(each)["origin"]]
    assert '<a href="/jobs/before">before</a>' in page_of(board, f"/jobs/{new}")


def unheard(made: Errands, id: str) -> str:
    """A job whose agent said nothing that counts; what its page says instead."""
    program = made.shell.place / "slow.py"
    program.write_text("import time; time.sleep(600)\n", encoding="utf-8")
    worker, says = {
        "refused": (made.script("chat", {"reply": "All is well."}), "refused"),
        "late": (f"command:{shlex.join([sys.executable, str(program)])}", "no answer in time"),
        "failed": (made.script("silence"), "failed"),
    }[id]
    made.spec(id, prompt="P", models={"worker": worker}, phases=[{"name": "w", "timeout": 0.2}])
    assert made.run(id) == 1
    return says


@pytest.mark.parametrize("id", ["refused", "late", "failed"])
def test_an_agent_is_not_quoted_with_what_it_did_not_say(
    made: Errands, board: Board, id: str
) -> None:
    says = unheard(made, id)
    exported = made.verbs("job history", id=id, format="html").data["html"]
    for page in (page_of(board, f"/jobs/{id}"), page_of(board, f"/jobs/{id}/call/0"), exported):
        assert f"</i>{says}</span>" in page
        assert "STUCK" not in page.split("<details")[0]
    for path in (f"/jobs/{id}", "/decisions"):
        page = page_of(board, path)
        assert "said <b>" not in page.split(f'id="decide-{id}"')[1].split("</form>")[0]
        assert f"<b>{says}</b>" in page


def test_what_was_said_and_not_accepted_is_shown_as_both(made: Errands, board: Board) -> None:
    done = said("COMPLETED", "It is done.")
    phases = [{"name": "w", "evidence": {"at_least": 1}, "max_retries": 0}]
    made.spec("bare", prompt="P", models={"worker": made.script("bare", done)}, phases=phases)
    assert made.run("bare") == 1
    page = page_of(board, "/jobs/bare")
    assert "</i>COMPLETED, not accepted</span>" in page
    assert "worker of w said <b>completed</b>: It is done." in page
    assert "0 evidence files" in page.split('id="decide-bare"')[1].split("</form>")[0]


def test_a_history_that_was_changed_is_told_on_the_pages_of_its_job(
    made: Errands, board: Board
) -> None:
    a_stuck_one(made, "edited")
    for path in ("/jobs/edited", "/jobs/edited/call/0"):
        page = page_of(board, path)
        assert "damaged" not in page
        assert "too long to be verified" not in page
    log = made.shell.home / "jobs/edited/history.jsonl"
    log.write_bytes(log.read_bytes().replace(b"flaky test of the queue", b"queue"))
    for path in ("/jobs/edited", "/jobs/edited/call/0"):
        (warning,) = page_of(board, path).split('<div class="wrong" role="alert">')[1:]
        told = warning.split("</div>")[0]
        assert "the history of edited is damaged: history.jsonl:" in told
        assert "holdfast job replay edited" in told
