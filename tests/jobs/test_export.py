"""What is taken elsewhere of a job: a table that computes nothing and a page that runs nothing."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape

from holdfast.errors import DiskFull, NotFound, UsageError
from holdfast.look.page import plain
from tests.ledger.shell import REPO, Shell, on_its_own
from tests.web.aftermath import HOSTILE
from tests.web.errands import COLOURED, Errands, a_second_try, hostile, said

COLUMNS = (
    "timestamp,step_number,role,action,summary,cost_usd,time_seconds,token_input,token_output,"
    "token_cache_read,cache_hit,ttft_seconds,throughput_tokens_per_second,total_tokens,status_after"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Errands]:
    made = Errands(Shell(tmp_path_factory.mktemp("export")))
    made.verbs("init")
    a_second_try(made)
    hostile(made)
    formula = made.script("formula", said("STUCK", '=HYPERLINK("http://x","y")\nand +1'))
    made.make("formula", "Count", formula)
    made.run("formula")
    yield made


class Elements(HTMLParser):
    """The elements of a page, and all that would make a browser ask for something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.asked: list[str] = []
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.handlers.append(f"{tag} {name}")
            if name in ("src", "href", "action", "data") and not str(value).startswith("#"):
                self.asked.append(f"{tag} {name}={value}")


def page_of(made: Errands, id: str) -> str:
    return str(made.verbs("job history", id=id, format="html").data["html"])


# --- CSV ------------------------------------------------------------------------------------


def rows_of(made: Errands, id: str) -> list[dict[str, str]]:
    text = str(made.verbs("job show", id=id, csv=True).data["csv"])
    assert text.splitlines()[0] == COLUMNS
    return list(csv.DictReader(io.StringIO(text)))


def test_the_table_has_a_line_for_each_call_and_leaves_empty_what_nobody_knows(
    made: Errands,
) -> None:
    rows = rows_of(made, "parse-dates")
    told = [(row["step_number"], row["role"], row["action"], row["status_after"]) for row in rows]
    assert told == [
        ("1", "worker", "COMPLETED", "REVIEWING"),
        ("2", "supervisor", "RETRY", "PENDING"),
        ("3", "worker", "COMPLETED", "REVIEWING"),
        ("4", "supervisor", "COMPLETED", "SUCCESS"),
    ]
    assert sum(float(row["cost_usd"]) for row in rows) == pytest.approx(0.056)
    assert (rows[0]["token_input"], rows[0]["total_tokens"]) == ("4100", "4900")
    assert {row["token_cache_read"] for row in rows} == {""}


def test_no_cell_begins_as_a_formula_or_goes_over_several_lines(made: Errands) -> None:
    (row,) = rows_of(made, "formula")
    assert row["summary"] == '\'=HYPERLINK("http://x","y") and +1'
    (row,) = rows_of(made, "hostile")
    assert HOSTILE[1] in row["summary"]


# --- the page -------------------------------------------------------------------------------


def test_the_page_tells_every_call_with_prompt_reply_cost_and_evidence(made: Errands) -> None:
    page = page_of(made, "parse-dates")
    calls = made.verbs("job history", id="parse-dates", format="json").data["interactions"]
    text = re.sub(r"<[^>]+>", "", page.partition("</style>")[2])
    for call in calls:
        assert f'id="call-{call["sequence"]}"' in page
        for told in (call["request"]["prompt"], call["response"]["raw_response"]):
            assert _escaped(told) in page
        assert call["response"]["summary_for_supervisor"] in text
    assert "dates.py missing" in text
    assert "$0.0560" in text
    assert "recovery point: work-complete-0" in text
    assert page.partition("</style>")[2].count('data-place="behind"') == 2


def _escaped(text: str) -> str:
    return str(escape(plain(text)))


def test_the_page_runs_nothing_asks_for_nothing_and_says_so_in_its_policy(made: Errands) -> None:
    for id in ("parse-dates", "hostile"):
        page = page_of(made, id)
        elements = Elements(page)
        assert not elements.names & {"script", "img", "iframe", "link", "form", "object", "base"}
        assert (elements.asked, elements.handlers) == ([], [])
        found = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
        assert found is not None
        digest = b64encode(sha256(found[1].encode()).digest()).decode()
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
        assert policy is not None
        assert unescape(policy[1]).startswith("default-src 'none'")
        assert f"sha256-{digest}" in policy[1]
        assert page.index("Content-Security-Policy") < page.index("<style>")
        assert "url(" not in found[1]


def test_what_agents_wrote_is_text_and_what_would_turn_it_round_is_shown(made: Errands) -> None:
    page = page_of(made, "hostile")
    assert not any(text in page for text in HOSTILE if "<" in text)
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "\\u202e" in page
    assert COLOURED.partition("\x1b]")[0].replace("\x1b", "\\u001b") in page


def test_the_page_and_the_dashboard_have_the_same_colours() -> None:
    here = (REPO / "src/holdfast/look/sheet.css").read_text("utf-8")
    there = (REPO / "src/holdfast/web/static/look.css").read_text("utf-8")
    ours, theirs = (_variables(each) for each in (here, there))
    assert ours == theirs != []


def _variables(sheet: str) -> list[str]:
    return re.findall(r"--[a-z0-9]+: [^;]+;", sheet.partition("\n* {")[0].partition("/* what")[0])


# --- the verbs ------------------------------------------------------------------------------


def test_an_export_is_one_file_and_nothing_is_written_over_unasked(
    made: Errands, tmp_path: Path
) -> None:
    out = tmp_path / "job.html"
    done = made.shell("job", "export", "parse-dates", "--out", str(out))
    assert (done.code, [each.name for each in tmp_path.iterdir()]) == (0, ["job.html"])
    before = out.read_bytes()
    with pytest.raises(UsageError, match="already exists"):
        made.verbs("job export", id="formula", out=str(out))
    assert out.read_bytes() == before
    made.verbs("job export", id="formula", out=str(out), replace=True)
    assert b"formula" in out.read_bytes()
    assert len(list(tmp_path.iterdir())) == 1


def test_an_export_to_no_file_says_so_and_leaves_nothing_behind(
    made: Errands, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        made.verbs("job export", id="formula", out=str(folder), replace=True)
    with pytest.raises(NotFound, match="no such folder") as caught:
        made.verbs("job export", id="formula", out=str(tmp_path / "gone/job.html"))
    assert "make it first" in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == [folder]


def test_an_export_replaces_no_file_of_the_home_and_nothing_but_files(
    made: Errands, tmp_path: Path
) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    history = made.shell.home / "jobs/formula/history.jsonl"
    before = history.read_bytes()
    for out, says in (
        (history, "a file of the home"),
        (pipe, "not a regular file"),
        (link, "not a regular file"),
    ):
        with pytest.raises(UsageError, match=says):
            made.verbs("job export", id="formula", out=str(out), replace=True)
    assert history.read_bytes() == before and pipe.is_fifo() and link.is_symlink()


def test_an_export_that_cannot_be_put_in_place_leaves_nothing_behind(
    made: Errands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(old: str, new: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("holdfast.userfile.os.replace", full)
    with pytest.raises(DiskFull):
        made.verbs("job export", id="formula", out=str(tmp_path / "job.html"), replace=True)
    assert list(tmp_path.iterdir()) == []


def test_the_history_is_a_table_for_people_and_a_document_for_programs(made: Errands) -> None:
    table = made.shell("job", "history", "parse-dates").out
    assert "STATUS_AFTER" in table
    assert re.search(r"1 +\S+ +review +supervisor +\S+ +SUCCESS +RETRY +PENDING +\d", table)
    last = made.verbs("job history", id="parse-dates", limit=1)
    assert [row["sequence"] for row in last.rows] == [3]
    assert last.truncated and last.counts == {"calls": 4}
    told = made.verbs("job history", id="parse-dates", format="json").data
    kept = json.loads((made.shell.home / "jobs/parse-dates/jobHistory.json").read_bytes())
    for call, same in zip(told["interactions"], kept["interactions"], strict=True):
        assert {name: call[name] for name in same} == same
    assert told["recovery_points"] == kept["recovery_points"]


def test_of_a_sensitive_job_only_the_course_is_taken_elsewhere_unless_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    made = Errands(Shell(tmp_path))
    made.verbs("init")
    made.verbs("key new")
    script = tmp_path / "write.sh"
    script.write_text("echo the-plan > file.txt; echo nothing\n", "utf-8")
    made.make("secret", "Write down the-plan", f"command:sh {script}", sensitive=True)
    made.run("secret")
    sealed = page_of(made, "secret")
    assert "the-plan" not in sealed
    assert "call-0" in sealed
    opened = made.verbs("job history", id="secret", format="html", decrypt=True).data["html"]
    assert "Write down the-plan" in opened
    assert "+the-plan" in opened


def test_only_one_call_is_shown_if_it_is_named(made: Errands) -> None:
    told = made.verbs("job history", id="parse-dates", format="json", only=2).data
    assert [call["sequence"] for call in told["interactions"]] == [2]
    with pytest.raises(NotFound, match="no call 9"):
        made.verbs("job history", id="parse-dates", only=9)
