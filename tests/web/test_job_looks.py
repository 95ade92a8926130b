"""What somebody sees who looks at jobs: all of it, at a glance, whatever the jobs are like."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import web
from holdfast.look.page import SHEET, lasted
from tests.ledger.shell import Shell
from tests.web.aftermath import HOSTILE
from tests.web.board import Board, page_of
from tests.web.browsing import NEEDS_CHROMIUM, visiting
from tests.web.errands import Errands, a_stuck_one, an_approval, said, spent
from tests.web.test_job_shown import letter

LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunter"
SHEETS = (
    Path(web.__file__).parent / "static" / "look.css",
    SHEET,
)


def chapters(made: Errands, id: str, count: int) -> None:
    """A job of many phases, each of which is done."""
    done = [said("COMPLETED", f"Chapter {each} is done.") for each in range(count)]
    phases = [{"name": f"chapter-{each:03}"} for each in range(count)]
    model = made.script(id, *done)
    budget = {"max_iterations": count + 1}
    made.spec(id, prompt="Go on", phases=phases, models={"worker": model}, budget=budget)
    assert made.run(id) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Errands:
    made = Errands(Shell(tmp_path_factory.mktemp("looks")))
    made.verbs("init", agent=["rio"], timezone="Asia/Tokyo")
    a_stuck_one(made, "gone")
    (made.shell.home / "jobs/gone/history.jsonl").write_bytes(b"")
    a_stuck_one(made, "sound")
    chapters(made, "chapters", 120)
    stuck = made.script("long", said("STUCK", "Why?"))
    made.spec("long", prompt="P", phases=[{"name": LONG}], models={"worker": stuck})
    made.run("long")
    return made


@pytest.fixture(scope="module")
def shell(made: Errands) -> Shell:
    return made.shell


def test_a_job_whose_history_is_gone_takes_no_page_down_and_stands_among_the_first(
    made: Errands, board: Board
) -> None:
    for path in ("/", "/decisions", "/ledger", "/agent/rio", "/jobs/sound", "/jobs?waiting=1"):
        assert board.get(path).status == 200, path
    page = page_of(board, "/jobs")
    assert page.index('id="job-gone"') < page.index('id="job-chapters"')
    assert '<a href="/jobs?status=DAMAGED">Damaged 1</a>' in page
    only = page_of(board, "/jobs?status=DAMAGED")
    assert 'id="job-gone"' in only and 'id="job-sound"' not in only
    assert "gone" not in [row["job"] for row in made.verbs.rows("job list", waiting=True)]
    answer = board.get("/jobs/gone")
    assert answer.status == 409
    assert b"<h1>Damaged</h1>" in answer.body and b'<a href="/jobs">To the jobs</a>' in answer.body


def test_a_job_that_is_lost_has_the_fields_of_every_other(made: Errands) -> None:
    rows = {row["job"]: row for row in made.verbs.rows("job list")}
    assert rows["gone"].keys() == rows["sound"].keys()


def test_times_of_a_job_are_by_the_clock_of_the_home(made: Errands, board: Board) -> None:
    made_at = made.show("sound")["created_at"]
    assert made_at.endswith("Z")
    hour = (int(made_at[11:13]) + 9) % 24
    (shown,) = re.findall(r"<dt>Made</dt><dd[^>]*>\S+ (\S+)</dd>", page_of(board, "/jobs/sound"))
    assert shown == f"{hour:02}{made_at[13:19]}"
    assert f"since {shown[:2]}" in page_of(board, "/decisions")


def test_many_phases_and_points_are_told_in_short(board: Board) -> None:
    page = page_of(board, "/jobs/chapters")
    assert "chapter-000, chapter-001, chapter-002 and 117 more</dt>" in page
    assert "<summary>112 older ones</summary>" in page


def test_what_went_wrong_with_a_call_is_told_once(made: Errands, board: Board) -> None:
    late = made.script("late", said("COMPLETED", "Late", delay=600))
    phases = [{"name": "w", "timeout": 0.2}]
    made.spec("late", prompt="P", models={"worker": late}, phases=phases)
    assert made.run("late") == 1
    card = page_of(board, "/jobs/late").split('<article class="call"')[1].split("<details")[0]
    assert card.count("did not answer in") == 1


def test_who_approves_sees_what_was_changed(made: Errands, board: Board) -> None:
    file = letter(made, "for-approval")
    for path in ("/jobs/for-approval", "/decisions"):
        assert '<a href="/jobs/for-approval/files">' in page_of(board, path)
    assert "<ins>+Dear all</ins>" in page_of(board, "/jobs/for-approval/files")
    file.write_text(f"{HOSTILE[0]}\n", encoding="utf-8")
    page = page_of(board, "/jobs/for-approval/files")
    assert HOSTILE[0] not in page and "<ins>+&lt;script" in page
    assert "Nothing was changed." in page_of(board, "/jobs/sound/files")
    yours = made.shell.place / "yours"
    yours.mkdir()
    made.spec("at-yours", prompt="P", isolation="none", source=str(yours))
    assert "/jobs/at-yours/files" not in page_of(board, "/jobs/at-yours")
    assert '<div class="wrong" role="alert">' in page_of(board, "/jobs/at-yours/files")


def test_where_texts_are_sealed_it_says_how_they_are_read(made: Errands, board: Board) -> None:
    assert made.shell("key", "new").code == 0
    worker = made.script("sealed", said("STUCK", "Which vault?"))
    words = ("--sensitive", "--id", "sealed", "--prompt", "Open it", "--worker", worker)
    assert made.shell("job", "new", *words).code == 0
    assert made.shell("job", "run", "sealed").code == 1
    for path in ("/jobs/sealed", "/decisions"):
        page = page_of(board, path)
        assert "Which vault?" not in page
        assert "<code>holdfast job history sealed --decrypt</code>" in page


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (0.44, "0.4 s"),
        (59, "59 s"),
        (600, "10 min"),
        (3600, "1 h"),
        (5025.3, "1 h 23 min"),
    ],
)
def test_a_length_of_time_is_told_as_people_count(seconds: float, told: str) -> None:
    assert lasted(seconds) == told


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_text_can_be_read_on_its_paper_in_both_themes(sheet: Path) -> None:
    """As design/look.md promises: a contrast of 4.5."""
    pairs = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\);", sheet.read_text("utf-8"))
    assert len(pairs) == 13
    for theme in (1, 2):
        colours: dict[str, str] = {each[0]: each[theme] for each in pairs}
        for ink in ("ink", "soft", "faint", "good", "going", "care", "bad", "quiet"):
            for paper in ("paper", "card", "wash"):
                light = sorted(brightness(colours[each]) + 0.05 for each in (ink, paper))
                assert light[1] / light[0] >= 4.5, (ink, paper)


# --- in a browser ---------------------------------------------------------------------------


@NEEDS_CHROMIUM
def test_many_phases_and_long_names_fit_on_a_page_and_on_an_export(
    browser: Any, made: Errands, board: Board, tmp_path: Path
) -> None:
    out = tmp_path / "chapters.html"
    made.verbs("job export", id="chapters", out=str(out))
    with visiting(browser, board) as visit:
        for path in ("/jobs", "/jobs/long", "/jobs/chapters", out.as_uri()):
            if path.startswith("/"):
                visit.go(path)
            else:
                visit.page.goto(path)
            for _ in visit.looks():
                if "chapters" in path:
                    box = visit.page.locator(".phases").bounding_box()
                    assert box is not None and box["height"] < 400
        visit.wrong.remove(f"asked {out.as_uri()}")


@NEEDS_CHROMIUM
def test_who_decides_about_one_job_is_not_told_that_it_changed_because_another_did(
    browser: Any, made: Errands, board: Board
) -> None:
    a_stuck_one(made, "mine")
    a_stuck_one(made, "theirs")
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/decisions")
        page.fill("#decide-mine textarea", "Take port 5433")
        made.verbs("job steward", id="theirs", decision="continue")
        page.wait_for_selector("#pending > .meanwhile")
        assert page.is_visible("#decide-theirs .stale")
        assert not page.is_visible("#decide-mine .stale")
        page.click(".meanwhile button")
        page.wait_for_selector("#decide-theirs", state="detached")
        assert page.input_value("#decide-mine textarea") == "Take port 5433"
        page.click("#decide-mine button:has-text('Continue')")
        page.wait_for_selector("#toasts p:has-text('mine is PENDING')")
        assert made.show("mine")["guidance"][0]["text"] == "Take port 5433"


@NEEDS_CHROMIUM
def test_a_job_is_not_ended_by_one_click(browser: Any, made: Errands, board: Board) -> None:
    a_stuck_one(made, "hopeless")
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/jobs/hopeless")
        assert page.locator("#decision button:visible").all_inner_texts() == ["Continue", "Suspend"]
        page.fill("#decision textarea", "Nobody needs it")
        page.click("#decision summary:has-text('Halt')")
        assert made.show("hopeless")["status"] == "INTERVENTION_REQUIRED"
        page.click("#decision button:has-text('Yes, end it for good')")
        page.wait_for_selector("#head .state:has-text('canceled')")
        assert made.show("hopeless")["why"] == "Nobody needs it"


@NEEDS_CHROMIUM
def test_a_limit_that_has_to_be_raised_is_asked_for_and_a_mistyped_one_can_be_mended(
    browser: Any, made: Errands, board: Board
) -> None:
    dear = made.script("dear", said("COMPLETED", "Dear.", **spent(0.09, 60000, 900)))
    made.spec("dear", prompt="P", models={"worker": dear}, budget={"max_cost": 0.08})
    made.run("dear")
    slow = made.script("brief", said("COMPLETED", "Late.", delay=600))
    made.spec("brief", prompt="P", models={"worker": slow}, budget={"max_time": 0.2})
    made.run("brief")
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/jobs/dear")
        page.click("#decision button:has-text('Resume')")
        page.wait_for_selector("#toasts p:has-text('how much it may use')")
        assert page.evaluate("document.activeElement.name") == "max_cost"
        visit.go("/jobs/brief")
        page.fill("#decision input[name=max_time]", "soon")
        page.click("#decision button:has-text('Resume')")
        refused = page.wait_for_selector("#decision .refused:not([hidden])").inner_text()
        assert "not a length of time" in refused and "Show what waits" not in refused
        assert any("400" in line for line in visit.wrong)
        visit.wrong.clear()
        page.fill("#decision input[name=max_time]", "1h")
        page.click("#decision button:has-text('Resume')")
        page.wait_for_selector("#head .state:has-text('pending')")
        assert made.show("brief")["limits"]["max_seconds"] == 3600


@NEEDS_CHROMIUM
def test_the_title_of_a_tab_tells_the_state_and_follows_it(
    browser: Any, made: Errands, board: Board
) -> None:
    an_approval(made, "titled")
    with visiting(browser, board) as visit:
        visit.go("/jobs/titled")
        before = visit.page.title()
        assert re.fullmatch(r"\(\d+\) titled: waits for approval · Holdfast", before)
        made.verbs("job steward", id="titled", decision="approve")
        visit.page.wait_for_function("() => document.title.includes('titled: pending')")


@NEEDS_CHROMIUM
def test_a_page_that_can_no_longer_be_drawn_says_that_it_is_out_of_date(
    browser: Any, made: Errands, board: Board
) -> None:
    a_stuck_one(made, "broken")
    history = made.shell.home / "jobs/broken/history.jsonl"
    kept = history.read_bytes()
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/jobs/broken")
        history.write_bytes(b"")
        page.wait_for_selector("#live[data-state=lost]:has-text('out of date: the history of')")
        history.write_bytes(kept)
        page.wait_for_selector("#live[data-state=live]")
        assert visit.wrong and all("409" in line for line in visit.wrong)
        visit.wrong.clear()


@NEEDS_CHROMIUM
def test_what_is_derived_for_one_look_is_not_derived_again_with_every_event(
    browser: Any, made: Errands, board: Board
) -> None:
    with visiting(browser, board) as visit:
        for path in ("/jobs/sound/replay", "/jobs/sound/files"):
            visit.go(path)
            assert visit.page.inner_text("#live") == "as it was when opened"
            assert not visit.page.is_visible("#pause")
