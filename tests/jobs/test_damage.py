"""Histories that are not what was written: noticed by the verbs that read them."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from holdfast.jobs.job import Job
from holdfast.jobs.report import as_html
from holdfast.ops import job_damage
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.job_show import history as show_history
from holdfast.ops.jobs import details
from holdfast.store.home import Home
from tests.jobs.desk import DONE, Desk

Change = Callable[[bytes], bytes]
PROMPT = "Write a haiku about the sea"


@pytest.fixture
def over(desk: Desk) -> Desk:
    """With a job that is over."""
    desk.ok("job", "new", "--prompt", PROMPT, "--id", "demo", "--worker", desk.script(DONE))
    desk.ran()
    return desk


def history(desk: Desk) -> Path:
    return desk.home / "jobs/demo/history.jsonl"


def change(desk: Desk, how: Change) -> None:
    history(desk).write_bytes(how(history(desk).read_bytes()))


def garbled(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:3], b'{"garbage\n', *lines[4:]])


def shortened(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-1])


BROKEN: dict[str, tuple[Change, str]] = {
    "a line that is garbage": (garbled, "history.jsonl:5: lines 4 to 4"),
    "another prompt": (lambda data: data.replace(b"haiku", b"novel"), "history.jsonl:1"),
    "lines gone from the end": (shortened, "was there"),
}


@pytest.mark.parametrize(("how", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_a_history_that_was_changed_does_not_replay_and_every_look_at_it_warns(
    over: Desk, how: Change, says: str
) -> None:
    change(over, how)
    error = over.refused("job", "replay", "demo", code=6, says=says)
    assert "holdfast check" in error["hint"]
    for verb in ("show", "history", "run"):
        ran = over("job", verb, "demo")
        assert ran.code == 0
        assert says in ran.err
        assert "holdfast check" in ran.err
        assert "job replay demo" in ran.err


@pytest.mark.parametrize(("how", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_taken_elsewhere_of_a_damaged_history_says_so_itself(
    over: Desk, how: Change, says: str
) -> None:
    change(over, how)
    page = over.cwd / "page.html"
    for words in (
        ("job", "export", "demo", "--out", str(page)),
        ("job", "history", "demo", "--format", "html", "--out", str(page)),
    ):
        ran = over(*words)
        assert (ran.code, says in ran.err) == (0, True), ran
        text = unescape(page.read_text("utf-8"))
        above, _, _ = text.partition("What happened")
        assert "This history is damaged" in above
        assert says in above
        assert "damaged, see above" in text
        page.unlink()
    told = over.ok("job", "history", "demo", "--format", "json")["data"]
    assert told["verified"]
    assert says in told["damage"][0]


def test_what_is_taken_elsewhere_of_a_sound_history_says_that_it_was_verified(over: Desk) -> None:
    page = over.cwd / "page.html"
    assert over("job", "export", "demo", "--out", str(page)).err == ""
    text = page.read_text("utf-8")
    assert "every line is what was written" in text
    assert "damaged" not in text.partition("</style>")[2]
    assert over.ok("job", "history", "demo", "--format", "json")["data"]["damage"] == []


def test_of_very_many_damaged_places_the_first_are_in_the_page(over: Desk) -> None:
    with Home.open(str(over.home)) as home, Job(home, "demo") as job:
        page = as_html(
            job, details(job), damage=[f"history.jsonl:{number}: odd" for number in range(2000)]
        )
    assert "history.jsonl:19: odd" in page and "history.jsonl:20: odd" not in page
    assert "and 1,980 more" in page


@pytest.mark.parametrize("torn", [b"", b'{"event":"note","te'])
def test_a_sound_history_replays_without_a_warning_also_with_a_line_in_progress(
    over: Desk, torn: bytes
) -> None:
    change(over, lambda data: data + torn)
    for verb in ("replay", "show", "history", "run"):
        ran = over("job", verb, "demo")
        assert ran.code == 0
        assert "damaged" not in ran.err


def test_a_part_of_a_prompt_that_is_not_what_it_is_called_is_named(over: Desk) -> None:
    """A whole chain does not help who writes another text under the name of a part."""
    (first, *_) = over.lines(event="part")
    with Home.open(str(over.home)) as home:
        log = home.log("jobs/demo/history.jsonl")
        log.append({"event": "part", "part": first["part"], "text": "Write a novel"})
        log.close()
    over.refused("job", "replay", "demo", code=6, says=f"part {first['part'][:16]}")


def test_a_part_in_which_a_secret_was_masked_is_no_damage(desk: Desk) -> None:
    prompt = "Use the key sk-ant-api03-" + "aB3dE5" * 16
    desk.ok("job", "new", "--prompt", prompt, "--id", "demo", "--worker", desk.script(DONE))
    desk.ran()
    assert b"[SECRET" in history(desk).read_bytes()
    desk.ok("job", "replay", "demo")


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "emptied"])
def test_a_job_without_its_history_is_damaged_and_not_unknown(over: Desk, gone: bool) -> None:
    over.new("--worker", "scripted:echo", id="other")
    if gone:
        history(over).unlink()
    else:
        change(over, lambda data: b"")
    for verb in ("show", "history", "run", "replay"):
        error = over.refused(
            "job", verb, "demo", code=6, says="the history of demo is damaged or gone"
        )
        assert "backup" in error["hint"]
    rows = {row["job"]: row["status"] for row in over.ok("job", "list")["rows"]}
    assert rows == {"demo": "DAMAGED", "other": "DRAFT"}
    assert "its history is damaged or gone" in over("doctor").out


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "emptied"])
def test_what_is_left_of_a_job_without_its_history_survives_a_rebuild(
    over: Desk, gone: bool
) -> None:
    if gone:
        history(over).unlink()
    else:
        change(over, lambda data: b"")
    before = over.manifest()
    over("rebuild")
    assert over.manifest() == before


def seen_from_afar(desk: Desk) -> tuple[bool, list[str]]:
    """Whether a page verifies the history of the job, and what it warns of."""
    with Context(str(desk.home)) as call:
        call.from_afar = True
        shown = show_history(call, "demo", format="json")
        assert isinstance(shown, Show)
        return shown.data["verified"], call.take_warnings()


def test_a_page_verifies_a_history_of_ordinary_length(over: Desk) -> None:
    assert seen_from_afar(over) == (True, [])
    change(over, garbled)
    looked, (warning,) = seen_from_afar(over)
    assert looked
    assert "history.jsonl:5: lines 4 to 4" in warning


@pytest.mark.parametrize("packed", [False, True])
def test_a_page_says_that_it_does_not_verify_a_long_history(
    over: Desk, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    if packed:
        over.ok("job", "archive", "demo")
        assert history(over).with_name("history.jsonl.zst").exists()
    size = sum(file.stat().st_size for file in history(over).parent.glob("history*"))
    monkeypatch.setattr(job_damage, "MOST_VERIFIED", size - 1)
    assert seen_from_afar(over) == (False, [])
    monkeypatch.setattr(job_damage, "MOST_VERIFIED", 10 * size)
    assert seen_from_afar(over) == (True, [])
