"""The examples of `examples/claude-code`, cron, systemd and the shell, run or read as they are."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent
from holdfast.cli.commands import Request, parse
from holdfast.clock import SystemClock
from holdfast.ops.table import TABLE
from holdfast.store.home import Home
from tests.ledger.shell import PATIENCE, PROGRAM, REPO, Shell, entries_in

EXAMPLES = REPO / "examples"
STAND_IN = str(EXAMPLES / "claude-code" / "claude-stand-in")
SETTINGS = EXAMPLES / "claude-code" / "settings.json"


class Later(SystemClock):
    def boottime(self) -> float:
        return super().boottime() + 3600


class Project:
    """A project with the hooks of the example, and a home."""

    def __init__(self, place: Path) -> None:
        self.shell = Shell(place)
        self.home, self.path = self.shell.home, place / "rio"
        (self.path / ".claude").mkdir(parents=True)
        shutil.copy(SETTINGS, self.path / ".claude" / "settings.json")
        self.shell("init", "rio", "--timezone", "UTC")
        (self.home / "state/rio/memory.md").write_text("## Facts\n\n- Fees are set by vote\n")

    def run(self, *command: str, said: str = "", **environment: str) -> Any:
        programs = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"HOLDFAST_HOME": str(self.home), "PATH": programs, **environment}
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.shell.environment(own),
            input=said,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def wrapped(self, *words: str, **environment: str) -> Any:
        limits = ("--agent", "rio", "--type", "research", "--timeout", "90m", "--context", "stdin")
        return self.run("holdfast", "run", *limits, "--", STAND_IN, "-p", *words, **environment)

    def journal(self) -> list[dict[str, Any]]:
        lines = (self.home / "state/rio/journal.jsonl").read_bytes().splitlines()
        return [record for line in lines if "event" in (record := json.loads(line))]

    def view(self, name: str) -> dict[str, Any]:
        return json.loads((self.home / "state/rio" / name).read_bytes())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_without_money_the_hooks_let_no_prompt_through(project: Project) -> None:
    with (project.home / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write("[budget]\nagent_day_usd = 1.0\n")
    project.shell("run", "--agent", "rio", "--", "true")
    before = project.journal()
    ran = project.run(STAND_IN, "-p", "Read on")
    assert "stopped by a hook" in ran.stderr
    assert "may spend 1.00 USD" in ran.stderr
    assert not (project.path / "notes.md").exists()
    assert project.journal() == before


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_under_run_there_is_one_session_with_its_tools_tokens_and_cost(
    project: Project, form: str
) -> None:
    ran = project.wrapped("--output-format", form, "--verbose")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout.splitlines()[-1])
    assert (result["type"], result["is_error"]) == ("result", False)
    # The prompt was the context: the hook does not say it a second time.
    assert result["result"] == "I was told 0 characters."
    lines = project.journal()
    assert [line["event"] for line in lines] == [
        "session_start",
        "joined",
        *["tool_use"] * 3,
        *(["session_set"] if "tokens_used" in lines[5] else []),
        "session_end",
    ]
    end, session = lines[-1], project.view("session.json")
    assert (end["outcome"], end["exit_code"]) == ("completed", 0)
    assert (end["cost_usd"], end["tokens_used"]) == (0.0421, 4 * 12162)
    assert (session["cost_usd"], session["tokens_used"]) == (0.0421, 4 * 12162)
    assert session["model"] == "stand-in-1"
    assert session["tools"]["by_name"] == {"Write": 1, "Bash": 1, "Read": 1}
    assert session["tools"]["failed"] == 1
    assert "notes.md" in session["measured"]["files_touched"]
    report = project.view("report.json")
    assert report["last_session"]["outcome"] == "completed"
    assert "stand-in-0123456789" not in json.dumps(lines)
    assert [entry["event"] for entry in entries_in(project.home, "rio")][-1] == "task_result"


def test_a_failure_of_the_agent_is_the_exit_code_and_the_outcome(project: Project) -> None:
    ran = project.wrapped("--output-format", "json", STAND_IN_FAILS="1")
    assert ran.returncode == 1
    ends = [line for line in project.journal() if line["event"] == "session_end"]
    assert [end["outcome"] for end in ends] == ["error"]
    assert "overloaded" in project.view("session.json")["errors"][0]
    assert project.view("session.json")["cost_usd"] == 0.0421


def test_a_context_that_the_prompt_has_not_comes_by_the_hook(project: Project) -> None:
    words = ("run", "--agent", "rio", "--", STAND_IN, "-p", "--output-format", "json", "Read on")
    ran = project.run("holdfast", *words)
    assert int(re.findall(r"\d+", json.loads(ran.stdout)["result"])[0]) > 100


def test_without_run_the_hooks_alone_make_a_session(project: Project) -> None:
    ran = project.run(STAND_IN, "-p", "Read on")
    assert ran.returncode == 0, ran.stderr
    assert int(re.findall(r"\d+", ran.stdout)[0]) > 100
    lines = project.journal()
    assert [line["event"] for line in lines] == ["session_start", *["tool_use"] * 3, "session_end"]
    assert lines[-1]["tokens_used"] == 4 * 12162
    assert "cost_usd" not in lines[-1]
    assert "cost unknown" in project.view("report.json")["summary"]
    assert project.view("session.json")["measured"]["files_touched"] == [
        str(project.path / "notes.md")
    ]


def test_under_run_an_agent_that_is_killed_has_one_end(project: Project) -> None:
    ran = project.wrapped("--output-format", "json", STAND_IN_DIES="1")
    assert ran.returncode == 128 + 9
    assert [line["event"] for line in project.journal()] == [
        "session_start",
        "joined",
        "tool_use",
        "error",
        "session_end",
    ]
    assert project.journal()[-1]["cause"] == "signal"


def test_without_run_an_agent_that_is_killed_is_found_by_its_silence(project: Project) -> None:
    settings = project.path / ".claude" / "settings.json"
    short = settings.read_text().replace("hook claude-code", "hook claude-code --timeout 1s")
    settings.write_text(short)
    ran = project.run(STAND_IN, "-p", "Read on", STAND_IN_DIES="1")
    assert ran.returncode == -9
    assert project.view("session.json")["status"] == "running"
    # A minute of grace and the silence later; the next one says what became of it.
    with Home.open(str(project.home), clock=Later()) as home, Agent(home, "rio") as rio:
        rio.bury()
    assert project.run(STAND_IN, "-p", "Read on").returncode == 0
    ends = [line for line in project.journal() if line["event"] == "session_end"]
    assert [end.get("cause") for end in ends] == ["crashed", None]


def test_every_hook_of_the_settings_is_the_same_line(project: Project) -> None:
    hooks = json.loads(SETTINGS.read_bytes())["hooks"]
    assert {"SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd"} <= set(hooks)
    assert "PreToolUse" not in hooks
    commands = {each["command"] for groups in hooks.values() for g in groups for each in g["hooks"]}
    assert commands == {"holdfast hook claude-code"}


# --- command lines that others run ----------------------------------------------------------


def understood(line: str) -> Request:
    """The request in a command line of ours."""
    words = shlex.split(line)
    assert Path(words[0]).name == "holdfast", line
    asked = parse(words[1:], TABLE)
    assert isinstance(asked, Request), line
    return asked


def cron_lines(file: Path) -> list[str]:
    """The commands of a crontab; red if a line has not the form of one."""
    found: list[str] = []
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("#") or not line.strip() or re.fullmatch(r"[A-Z_]+=\S.*", line):
            continue
        match = re.fullmatch(r"((?:[\d*/,-]+ ){5})(.+)", line)
        assert match, line
        # In a crontab a percent sign ends the command.
        assert "%" not in line
        found.append(match[2].rpartition("&& ")[2])
    return found


@pytest.mark.parametrize("file", ["cron/crontab", "claude-code/crontab"])
def test_the_lines_for_cron_are_commands_of_ours(file: str) -> None:
    lines = cron_lines(EXAMPLES / file)
    assert lines
    names = [understood(line).operation.name for line in lines]
    assert "run" in names


def test_the_units_for_systemd_are_commands_of_ours() -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / "systemd" / "holdfast-rio.service", "utf-8")
    service = unit["Service"]
    asked = understood(service["ExecStart"])
    assert (asked.operation.name, asked.arguments["timeout"]) == ("run", "90m")
    assert understood(service["ExecStopPost"]).operation.name == "session sweep"
    assert service["TimeoutStartSec"] == "100min"
    timer = RawConfigParser()
    timer.optionxform = str  # type: ignore[assignment, method-assign]
    timer.read(EXAMPLES / "systemd" / "holdfast-rio.timer", "utf-8")
    assert timer["Timer"]["Persistent"] == "true"
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units() -> None:
    units = [str(file) for file in sorted((EXAMPLES / "systemd").glob("*.[st]*"))]
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = [line for line in ran.stderr.splitlines() if "not executable" not in line]
    assert wrong == []


# --- shell ----------------------------------------------------------------------------------

HOOKS = EXAMPLES / "shell-hooks"


def test_the_shell_hooks_begin_and_end_a_session(project: Project) -> None:
    before = project.run("sh", str(HOOKS / "pre-session.sh"), AGENT="rio", TYPE="research")
    assert before.returncode == 0, before.stderr
    assert "Fees are set by vote" in before.stdout
    again = project.run("sh", str(HOOKS / "pre-session.sh"), AGENT="rio")
    assert (again.returncode, again.stdout) == (5, "")
    told = {"SOURCES": "8", "SUMMARY": "it's $HOME; `x`", "HANDOFF": "three are left"}
    after = project.run("sh", str(HOOKS / "post-session.sh"), AGENT="rio", **told)
    assert after.returncode == 0, after.stderr
    session = project.view("session.json")
    assert (session["status"], session["sources_archived"]) == ("completed", 8)
    assert project.view("report.json")["summary"] == told["SUMMARY"]
    assert session["handoff_notes"] == told["HANDOFF"]


@pytest.mark.parametrize(("code", "status"), [("3", "error"), ("124", "timeout")])
def test_the_shell_hook_for_failures_keeps_what_went_wrong(
    project: Project, code: str, status: str
) -> None:
    project.run("sh", str(HOOKS / "pre-session.sh"), AGENT="rio")
    told = {"AGENT": "rio", "CODE": code, "MESSAGE": "the key was refused"}
    assert project.run("sh", str(HOOKS / "on-error.sh"), **told).returncode == 0
    session = project.view("session.json")
    assert (session["status"], session["errors"]) == (status, ["the key was refused"])


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here")
def test_shellcheck_finds_nothing_wrong_with_the_shell_hooks() -> None:
    files = [str(file) for file in HOOKS.glob("*.sh")]
    assert subprocess.run(["shellcheck", *files], check=False).returncode == 0


def test_the_stand_in_says_that_it_is_one() -> None:
    ran = subprocess.run(
        [sys.executable, STAND_IN, "--help"], capture_output=True, text=True, check=True
    )
    assert "stand-in" in ran.stdout


# --- the page about it ----------------------------------------------------------------------

PAGE = REPO / "docs" / "claude-code.md"


def test_the_commands_of_the_page_work(project: Project) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    steps = [line[2:] for block in blocks for line in block.splitlines()]
    assert len(steps) == 5
    for step in steps:
        ran = project.run("sh", "-c", step)
        assert ran.returncode == 0, f"{step}: {ran.stderr}"
    kinds = [line["event"] for line in project.journal()]
    assert kinds == ["session_start", "tool_use", "session_end"]


def test_the_page_shows_the_line_for_cron_that_is_in_the_examples() -> None:
    [line] = cron_lines(EXAMPLES / "claude-code" / "crontab")
    assert line in PAGE.read_text("utf-8")


def test_the_page_knows_every_event_of_the_settings_that_it_treats_apart() -> None:
    page = PAGE.read_text("utf-8")
    for name in ("SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd"):
        assert f"`{name}`" in page


@pytest.mark.parametrize(
    "page", [PAGE, EXAMPLES / "claude-code" / "README.md"], ids=["docs", "readme"]
)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    assert links
    assert [to for to in links if "://" not in to and not (page.parent / to).exists()] == []
