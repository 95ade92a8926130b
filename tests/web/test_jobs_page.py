"""The pages of jobs: what waits for somebody, what happened, and deciding there."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.interop import jobs as adopt
from holdfast.store.home import Home
from tests.agents.world import until
from tests.jobs.test_import import call, folder, job, manifest, recorded, told
from tests.ledger.shell import PATIENCE, Shell
from tests.web.aftermath import HOSTILE
from tests.web.board import Board, page_of, up
from tests.web.browsing import NEEDS_CHROMIUM, Visit, visiting
from tests.web.errands import Errands, a_stuck_one, an_approval, errands, hostile, said

DEEDS = ("approve", "reject", "continue", "halt", "suspend", "resume", "rewind", "cancel")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Errands:
    made = errands(tmp_path_factory.mktemp("jobs"))
    hostile(made)
    return made


@pytest.fixture(scope="module")
def shell(made: Errands) -> Shell:
    return made.shell


def waiting(board: Board) -> list[str]:
    return [row["job"] for row in board.get("/api/job/list?waiting=true").json()["rows"]]


def decide(visit: Visit, words: str) -> None:
    visit.page.click(f"#decision button:has-text('{words}')")


def wait_for_state(visit: Visit, words: str) -> None:
    visit.page.wait_for_selector(f"#head .state:has-text('{words}')")


# --- without a browser ----------------------------------------------------------------------


def test_jobs_that_wait_for_a_person_come_first_and_the_filter_is_in_the_address(
    made: Errands, board: Board
) -> None:
    page = page_of(board, "/jobs")
    places = {id: page.index(f'id="job-{id}"') for id in ("flaky-test", "queued", "parse-dates")}
    assert sorted(places, key=places.__getitem__) == ["flaky-test", "queued", "parse-dates"]
    only = page_of(board, "/jobs?status=SUCCESS")
    assert 'id="job-parse-dates"' in only
    assert 'id="job-queued"' not in only
    assert 'id="job-parse-dates"' not in page_of(board, "/jobs?waiting=1")
    assert board.get("/jobs?status=BOGUS").status == 400


def test_every_decision_that_waits_is_on_one_page_and_counted_on_all(board: Board) -> None:
    waits = waiting(board)
    page = page_of(board, "/decisions")
    assert len(waits) >= 4
    assert page.count('<form class="decide"') == len(waits)
    for path in ("/", "/jobs", "/decisions", "/ledger", "/agent/rio"):
        assert f'<b class="count" aria-label="{len(waits)} wait for you">' in page_of(board, path)


def test_what_a_job_shows_is_what_can_be_done_and_all_else_is_refused(made: Errands) -> None:
    for row in made.verbs.rows("job list"):
        for deed in set(DEEDS) - set(row["could"]):
            with pytest.raises(HoldfastError) as caught:
                if deed in ("suspend", "resume", "cancel"):
                    made.verbs(f"job {deed}", id=row["job"])
                elif deed == "rewind":
                    made.verbs("job rewind", id=row["job"], phase=0, dry_run=True)
                else:
                    made.verbs("job steward", id=row["job"], decision=deed, guidance="No")
            assert caught.value.code == "refused", (row, deed)


def test_a_cancel_that_is_only_tried_changes_nothing(made: Errands) -> None:
    tried = made.verbs("job cancel", id="draft", dry_run=True)
    assert (tried.applied, tried.dry_run) == (False, True)
    assert made.show("draft")["status"] == "DRAFT"
    with pytest.raises(HoldfastError, match="cancel is refused"):
        made.verbs("job cancel", id="never-mind", dry_run=True)


def test_of_calls_that_were_imported_with_the_same_number_the_last_is_shown(
    board: Board, made: Errands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As it was done before numbers were given.
    outcome = adopt._outcome
    monkeypatch.setattr(
        adopt,
        "_outcome",
        lambda *read: outcome(*read)._replace(calls=read[1]["interactions"]),
    )
    tree = folder(tmp_path / "tree")
    job(tree, "doubled", manifest(), recorded(told(0), {**told(1), "sequence": 0}))
    made.verbs("import", src=str(tree))
    assert "Step 1." in page_of(board, "/jobs/doubled/call/0")


def test_the_replay_of_a_job_says_that_every_state_follows_or_where_it_does_not(
    board: Board, made: Errands
) -> None:
    assert "Every state follows." in page_of(board, "/jobs/parse-dates/replay")
    made.make("twisted", "Say yes", made.script("twisted", said("COMPLETED", "Yes.")))
    made.run("twisted")
    history = made.shell.home / "jobs/twisted/history.jsonl"
    said_yes, said_again = (rf"{{\"action\": \"{word}\"" for word in ("COMPLETED", "RETRY"))
    kept = history.read_text("utf-8")
    assert kept.count(said_yes) == 1
    history.write_text(kept.replace(said_yes, said_again.ljust(len(said_yes))), "utf-8")
    page = page_of(board, "/jobs/twisted/replay")
    assert "It is not what was written." in page
    assert "history.jsonl:" in page
    history.write_text(kept, "utf-8")
    with Home.open(str(made.shell.home)) as home:
        log = home.log("jobs/twisted/history.jsonl")
        log.append({"event": "move", "cause": "activate", "status": "PENDING"})
        log.close()
    page = page_of(board, "/jobs/twisted/replay")
    assert "It differs at call 1." in page
    assert "activate leads from SUCCESS to PENDING" in page


def test_a_job_brought_from_elsewhere_and_one_that_was_packed_are_shown_as_well(
    board: Board, made: Errands, tmp_path: Path
) -> None:
    tree = folder(tmp_path / "tree", foreign=manifest())
    calls = [call(1), call(2, "RETRY") | {"model": None}]
    job(tree, "foreign", manifest() | {"prompt": None, "objective": "Port it"}, calls)
    made.verbs("import", src=str(tree))
    page = page_of(board, "/jobs/foreign")
    assert page.count('<article class="call"') == 2
    assert "Step 2." in page and "model unknown" in page and "Objective: Port it" in page
    assert b"Step 2." in board.get("/jobs/foreign/foreign.html").body
    made.make("packed", "Say yes", made.script("packed", said("COMPLETED", "Yes.")))
    made.run("packed")
    made.verbs("job archive", id="packed")
    for path in ("", "/call/0", "/replay", "/packed.html", "/packed.csv"):
        assert board.get(f"/jobs/packed{path}").status == 200


def test_an_export_and_a_table_are_handed_out_as_files(board: Board) -> None:
    for ending, start in (("html", b"<!doctype html>"), ("csv", b"timestamp,step_number")):
        answer = board.get(f"/jobs/parse-dates/parse-dates.{ending}")
        assert answer.body.startswith(start)
        named = f'attachment; filename="parse-dates.{ending}"'
        assert answer.headers["content-disposition"] == named
    assert board.get("/jobs/parse-dates/other.html").status == 404
    for path in ("/jobs/nobody", "/jobs/..", "/jobs/parse-dates/call/99", "/jobs/nobody/replay"):
        assert board.get(path).status in (400, 404), path


def test_an_approval_of_what_is_gone_is_refused_over_http_too(made: Errands, board: Board) -> None:
    an_approval(made, "over-http")
    body = {"id": "over-http", "decision": "approve", "shown": "0" * 16}
    answer = board.post("/api/job/steward", body)
    assert (answer.status, answer.json()["error"]["code"]) == (409, "stale_approval")
    assert made.show("over-http")["hold"] == "approval"
    body["shown"] = made.show("over-http")["shown"]
    assert board.post("/api/job/steward", body).json()["data"]["status"] == "PENDING"


def test_who_may_only_look_sees_decisions_and_has_no_buttons(tmp_path: Path) -> None:
    made = Errands(Shell(tmp_path))
    made.verbs("init")
    a_stuck_one(made)
    with up(made.shell, "--read-only") as board:
        board.log_in()
        for path in ("/decisions", "/jobs/flaky-test"):
            page = page_of(board, path)
            assert "Which port may it use?" in page
            assert not any(word in page for word in ("data-steward", "data-post", "<textarea"))


# --- in a browser ---------------------------------------------------------------------------

PAGES = {
    "jobs": "/jobs",
    "jobs-none": "/jobs?status=HALTED_TIME",
    "job-approval": "/jobs/release-notes",
    "job-over": "/jobs/parse-dates",
    "job-halted": "/jobs/read-it-all",
    "job-hostile": "/jobs/hostile",
    "call": "/jobs/parse-dates/call/1",
    "replay": "/jobs/parse-dates/replay",
    "decisions": "/decisions",
}


@NEEDS_CHROMIUM
def test_the_pages_are_whole_and_what_agents_wrote_is_text(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        for name, path in PAGES.items():
            visit.go(path)
            assert len(list(visit.looks(name))) == 4
            assert visit.page.evaluate("window.pwned") is None, path
        visit.go("/jobs/hostile")
        visit.page.click("#reply-0 summary")
        shown = visit.text()
        assert all(text in shown for text in HOSTILE)
        assert "report\\u202etxt" in shown
        assert "\\u001b[31mred" in shown
        assert visit.page.locator("#call-0 .paths [data-state=missing]").count() == 2


@NEEDS_CHROMIUM
def test_an_export_opens_from_a_disk_and_asks_for_nothing(
    browser: Any, made: Errands, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    made.verbs("job export", id="hostile", out=str(out))
    for theme, paper in (("light", "rgb(248, 246, 241)"), ("dark", "rgb(18, 24, 27)")):
        context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme)
        page, wrong = context.new_page(), list[str]()
        page.on("console", lambda message, wrong=wrong: wrong.append(message.text))
        page.on("request", lambda asked, wrong=wrong: wrong.append(asked.url))
        page.goto(out.as_uri())
        assert wrong == [out.as_uri()]
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        page.click("summary")
        assert HOSTILE[0] in page.inner_text("details[open] pre")
        context.close()


@NEEDS_CHROMIUM
def test_a_stuck_job_is_guided_by_keyboard_and_goes_on_live(
    browser: Any, made: Errands, board: Board
) -> None:
    a_stuck_one(made, "by-keyboard")
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/")
        page.keyboard.press("g")
        page.keyboard.press("d")
        page.wait_for_url("**/decisions")
        visit.go("/jobs/by-keyboard")
        page.keyboard.press("c")
        page.keyboard.type("Take port 5433")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Continue"
        page.keyboard.press("Enter")
        wait_for_state(visit, "pending")
        assert page.inner_text("#timeline .between q") == "Take port 5433"
        assert page.input_value("#decision textarea") == ""
        (told,) = made.show("by-keyboard")["guidance"]
        assert (told["text"], told["by"]) == ("Take port 5433", "dashboard")
        made.run("by-keyboard")
        wait_for_state(visit, "success")
        assert "The test waits for the port that it was told." in visit.text()
        assert page.locator("#decision button").count() == 0


@NEEDS_CHROMIUM
def test_a_phase_is_sent_back_with_words_and_approved_when_it_is_right(
    browser: Any, made: Errands, board: Board
) -> None:
    an_approval(made, "sent-back")
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/jobs/sent-back")
        decide(visit, "Reject")
        page.wait_for_selector("#toasts p:has-text('Say what is wrong')")
        assert made.show("sent-back")["hold"] == "approval"
        page.fill("#decision textarea", "Half as long.")
        decide(visit, "Reject")
        wait_for_state(visit, "pending")
        made.run("sent-back")
        wait_for_state(visit, "waits for approval")
        assert "Wrote them again, shorter." in page.inner_text("#decision")
        decide(visit, "Approve")
        wait_for_state(visit, "pending")
        assert page.inner_text(".phases [aria-current] b") == "publish"
        assert (
            "Half as long."
            in made.verbs("job history", id="sent-back", format="json", only=1).data[
                "interactions"
            ][0]["request"]["prompt"]
        )


@NEEDS_CHROMIUM
def test_what_changed_under_the_hands_of_who_decides_is_told_and_not_approved(
    browser: Any, made: Errands, board: Board
) -> None:
    an_approval(made, "changed")
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/jobs/changed")
        page.fill("#decision textarea", "Well done.")
        made.verbs("job steward", id="changed", decision="reject", guidance="Shorter")
        made.run("changed")
        page.wait_for_selector("#decision form[data-old] .stale")
        assert "Wrote the notes for 4.2." in page.inner_text("#decision")
        decide(visit, "Approve")
        refused = page.wait_for_selector("#decision .refused:not([hidden])").inner_text()
        assert "this is not what waits any more" in refused
        visit.picture("job-stale-approval")
        assert made.show("changed")["hold"] == "approval"
        assert any("409" in line for line in visit.wrong)
        visit.wrong.clear()
        page.click("#decision .refused button")
        page.wait_for_selector("#decision .why:has-text('Wrote them again, shorter.')")
        assert page.input_value("#decision textarea") == "Well done."
        decide(visit, "Approve")
        wait_for_state(visit, "pending")
    kinds = [row["kind"] for row in made.verbs.rows("audit list", job="changed")]
    assert "stale_approval" in kinds


@NEEDS_CHROMIUM
def test_a_job_that_runs_is_seen_running_and_ended_with_its_runner(
    browser: Any, made: Errands, board: Board
) -> None:
    made.make("slow", "Take your time", made.script("slow", said("COMPLETED", "Done", delay=600)))
    runner = made.shell.start("job", "run", "slow")
    try:
        with visiting(browser, board) as visit:
            page = visit.page
            until(lambda: made.show("slow")["status"] == "RUNNING")
            visit.go("/jobs/slow")
            page.wait_for_selector("#call-0 .state:has-text('being asked')")
            assert page.inner_text("#figures div:last-child dd").startswith(str(runner.pid))
            visit.picture("job-running")
            decide(visit, "Suspend")
            page.wait_for_selector("#decision button:has-text('Resume')")
            page.click("#decision summary")
            decide(visit, "Yes, end it for good")
            wait_for_state(visit, "canceled")
            assert runner.wait(PATIENCE) in (1, 128 + signal.SIGTERM, -signal.SIGTERM)
    finally:
        runner.kill()
        runner.communicate()


@NEEDS_CHROMIUM
def test_a_job_that_used_up_its_money_goes_on_with_more(
    browser: Any, made: Errands, board: Board
) -> None:
    with visiting(browser, board) as visit:
        visit.go("/jobs/read-it-all")
        visit.page.fill("#decision input[name=max_cost]", "0.5")
        decide(visit, "Resume")
        wait_for_state(visit, "pending")
        assert made.show("read-it-all")["limits"]["max_cost_usd"] == 0.5


@NEEDS_CHROMIUM
def test_from_the_list_to_a_call_and_back_by_keyboard_alone(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/ledger")
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.wait_for_url("**/jobs")
        page.wait_for_selector("#live[data-state=live]")
        for _ in range(30):
            page.keyboard.press("j")
            if page.get_attribute("[aria-current=true]:is(tr)", "id") == "job-parse-dates":
                break
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/parse-dates")
        page.wait_for_selector("#live[data-state=live]")
        page.keyboard.press("j")
        assert page.get_attribute("[data-row][aria-current=true]", "id") == "call-3"
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        assert "You are the supervisor" in page.inner_text("#prompt-3 pre")
        page.keyboard.press("Escape")
        page.wait_for_url("**/jobs")
