"""`check`, `doctor` and `rebuild`: what is wrong with a home, and what can be mended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.process import this_process
from holdfast.store.home import Home
from holdfast.testing import DAY, Turner
from tests.ledger.shell import REPO, Shell, Verbs, day_files, is_status, on_its_own, status_on_disk
from tests.ledger.test_unwritable import obey_modes


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """A home with two agents and a few events."""
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", agent=["rio", "clay"], timezone="UTC")
    for number in range(3):
        made.write(str(number), event="task_start", task=f"wo-{number}")
    return made


def answers(verbs: Verbs, **more: Any) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in verbs.rows("doctor", **more)}


def damaged(verbs: Verbs, what: str) -> Path:
    """Do something bad to the home; the file it was done to."""
    home = Path(verbs.path)
    places = {
        "edited line": day_files(home, "rio")[0],
        "emptied day": day_files(home, "rio")[0],
        "broken document": home / "state/rio/manifest.json",
        "stale view": home / "state/rio/status.json",
        "broken stamp": home / "state/rio/.status.json.view",
        "symbolic link": home / "state/rio/link.json",
        "strange name": home / "state/rio/new file.json",
    }
    file = places[what]
    match what:
        case "edited line":
            file.write_bytes(file.read_bytes().replace(b"wo-1", b"wo-7"))
        case "emptied day":
            os.truncate(file, 0)
        case "broken document":
            file.write_bytes(b'{"agent_id": ')
        case "stale view":
            file.write_bytes(file.read_bytes().replace(b"busy", b"idle"))
        case "broken stamp":
            file.write_bytes(b"{}\n")
        case "symbolic link":
            file.symlink_to("/etc/passwd")
        case _:
            file.write_bytes(b"{}\n")
    return file


DAMAGES = {
    # what: the kind that `check` calls it, and the key it names
    "edited line": ("edited", "ledger/rio"),
    "emptied day": ("empty", "ledger/rio"),
    "broken document": ("corrupt", "state/rio/manifest.json"),
    "stale view": ("view", "state/rio/status.json"),
    "broken stamp": ("view", "state/rio/status.json"),
    "symbolic link": ("alien", "state/rio/link.json"),
    "strange name": ("alien", "state/rio/new file.json"),
}


def test_a_sound_home_passes_and_every_question_is_answered(verbs: Verbs) -> None:
    assert verbs("check").exit_code == 0
    counts = verbs("check").counts
    assert (counts["broken"], counts["harmless"]) == (0, 0)
    # Settings, the index, seven files of each of two agents, a day of events and a status.
    assert counts["files"] == 18
    found = verbs("doctor")
    assert found.exit_code == 0
    asked = ["home", "disk", "file system", "git", "clock", "locks", "agents", "integrity"]
    assert list(answers(verbs)) == asked
    assert {row["state"] for row in found.rows} == {"ok"}
    assert verbs.path in answers(verbs)["home"]["detail"]


@pytest.mark.parametrize("what", DAMAGES)
def test_check_finds_each_damage_and_says_what_to_do(verbs: Verbs, what: str) -> None:
    damaged(verbs, what)
    found = verbs("check")
    assert found.exit_code == 6
    first = found.rows[0]
    assert (first["kind"], first["key"]) == DAMAGES[what]
    assert first["detail"]
    assert first["repair"]


@pytest.mark.parametrize("what", DAMAGES)
def test_doctor_shows_each_damage_as_broken_with_a_fix(verbs: Verbs, what: str) -> None:
    damaged(verbs, what)
    found = verbs("doctor")
    assert found.exit_code == 1
    row = answers(verbs)[DAMAGES[what][1]]
    assert row["state"] == "broken"
    assert row["fix"]
    assert "integrity" not in answers(verbs)


@pytest.mark.parametrize("what", DAMAGES)
def test_looking_changes_nothing(verbs: Verbs, what: str) -> None:
    damaged(verbs, what)

    def everything() -> dict[str, Any]:
        files = [file for file in Path(verbs.path).rglob("*") if file.is_file()]
        return {str(file): (file.lstat().st_mtime_ns, file.read_bytes()) for file in files}

    before = everything()
    verbs("check", all=True)
    verbs("doctor")
    verbs("doctor", fix=True, dry_run=True)
    verbs("rebuild", dry_run=True)
    assert everything() == before


@pytest.mark.parametrize("what", ["stale view", "broken stamp"])
def test_doctor_fix_folds_a_wrong_view_anew(verbs: Verbs, what: str) -> None:
    damaged(verbs, what)
    found = verbs("doctor", fix=True)
    assert (found.exit_code, found.counts["mended"]) == (0, 1)
    assert answers(verbs)["integrity"]["state"] == "ok"
    assert status_on_disk(verbs.path, "rio")["state"] == "busy"


def test_doctor_fix_removes_what_dead_writers_left(verbs: Verbs) -> None:
    home = Path(verbs.path)
    left = [
        home / "state/rio/.status.json.tmp",
        home / "state/clay/.manifest.json.tmp",
        home / "ledger/rio/.2023-11-15.jsonl.tmp",
        home / ".holdfast.toml.tmp",
    ]
    for file in left:
        file.write_bytes(b"half of it")
    assert verbs("check").exit_code == 0
    counts = verbs("check", all=True).counts
    assert (counts["broken"], counts["harmless"]) == (0, 4)

    planned = [row["check"] for row in verbs.rows("doctor", fix=True, dry_run=True)]
    assert all(file.exists() for file in left)
    found = verbs("doctor", fix=True)
    assert found.counts["mended"] == 4
    assert not any(file.exists() for file in left)
    mended = [row["check"] for row in found.rows if row["state"] == "mended"]
    assert sorted(mended) == sorted(str(file.relative_to(home)) for file in left)
    assert set(mended) <= set(planned)
    assert verbs("doctor", fix=True).counts["mended"] == 0


@pytest.mark.parametrize("what", ["edited line", "emptied day", "broken document"])
def test_doctor_fix_leaves_evidence_alone_and_goes_on_calling_it_broken(
    verbs: Verbs, what: str
) -> None:
    file = damaged(verbs, what)
    before = file.read_bytes()
    assert verbs("doctor", fix=True).exit_code == 1
    assert file.read_bytes() == before
    assert answers(verbs)[DAMAGES[what][1]]["state"] == "broken"


def test_a_home_inside_a_work_tree_is_warned_about(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    shell = Shell(tmp_path)
    tree = tmp_path / "project"
    tree.mkdir()
    assert shell.run(["git", "init", "-q", str(tree)]).code == 0
    shell.home = tree / "deep/inside"
    shell.write("text")

    ran = shell("doctor", "--json")
    assert ran.code == 1
    [row] = [row for row in ran.rows() if row["check"] == "git"]
    assert row["state"] == "warning"
    assert str(tree) in row["detail"]
    assert "git clean" in row["fix"]
    assert shell("check").code == 0, "it is no damage"


def test_a_home_that_is_itself_a_work_tree_is_warned_about(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    shell = Shell(tmp_path)
    shell.write("text")
    assert shell.run(["git", "init", "-q", str(shell.home)]).code == 0
    [row] = [row for row in shell("doctor", "--json").rows() if row["check"] == "git"]
    assert row["state"] == "warning"


@pytest.fixture
def inside_git(tmp_path: Path) -> Shell:
    """A home in a work tree, with an agent in it."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    shell = Shell(tmp_path)
    tree = tmp_path / "project"
    shell.home = tree / "deep/inside"
    assert shell("init", "rio").code == 0
    assert shell.run(["git", "init", "-q", str(tree)]).code == 0
    return shell


def of_git(shell: Shell) -> dict[str, dict[str, str]]:
    rows = shell("doctor", "--json").rows()
    return {row["check"]: row for row in rows if row["check"].startswith("git")}


def test_doctor_says_what_git_would_do_to_the_home(inside_git: Shell) -> None:
    shell, tree = inside_git, inside_git.home.parents[1]
    row = of_git(shell)["git"]
    assert "git tracks nothing of it; not ignored; `git clean -fd` would" in row["detail"]
    (tree / ".gitignore").write_text("deep/\n", encoding="utf-8")
    row = of_git(shell)["git"]
    assert "git tracks nothing of it; ignored; `git clean -fdx` would" in row["detail"]


def test_what_doctor_says_of_git_clean_is_what_it_does(inside_git: Shell) -> None:
    shell, tree = inside_git, inside_git.home.parents[1]
    (tree / ".gitignore").write_text("deep/\n", encoding="utf-8")
    shell.run(["git", "-C", str(tree), "clean", "-fdq"])
    assert shell.home.exists()
    shell.run(["git", "-C", str(tree), "clean", "-fdxq"])
    assert not shell.home.exists()


def test_lock_files_that_git_tracks_are_named(inside_git: Shell) -> None:
    shell, tree = inside_git, inside_git.home.parents[1]
    assert shell.run(["git", "-C", str(tree), "add", "-A"]).code == 0
    found = of_git(shell)
    count = sum(file.is_file() for file in shell.home.rglob("*"))
    assert f"git tracks {count} of its files" in found["git"]["detail"]
    assert "git rm -r --cached" in found["git"]["fix"]
    assert ".journal.jsonl.lock" in found["git locks"]["detail"]
    assert shell("ledger", "write", "--agent", "rio", "--event", "info", "still works").code == 0


def test_git_is_asked_without_running_what_the_repository_names(inside_git: Shell) -> None:
    shell, tree = inside_git, inside_git.home.parents[1]
    ran = tree / "ran"
    hook = tree / ".git/hooks/post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
    hook.chmod(0o755)
    shell.run(["git", "-C", str(tree), "config", "core.fsmonitor", f"touch {ran}; false"])
    index = {file: file.read_bytes() for file in (tree / ".git").rglob("*") if file.is_file()}
    assert "git" in of_git(shell)
    assert not ran.exists()
    after = {file: file.read_bytes() for file in (tree / ".git").rglob("*") if file.is_file()}
    assert after == index


def test_a_home_that_is_a_dangling_link_is_called_that(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.home.symlink_to(tmp_path / "nowhere")
    ran = shell("doctor")
    assert ran.code == 4
    assert "symbolic link" in ran.err
    assert "nowhere" in ran.err


def test_a_link_inside_the_home_is_shown_with_where_it_leads(verbs: Verbs) -> None:
    Path(verbs.path, "state/rio/link.json").symlink_to("/not/there")
    detail = answers(verbs)["state/rio/link.json"]["detail"]
    assert "/not/there, which is not there" in detail


def test_a_lock_whose_process_is_gone_is_named(verbs: Verbs) -> None:
    Path(verbs.path, "state/runner.lock").write_text("999999999", encoding="utf-8")
    row = answers(verbs)["state/runner.lock"]
    assert row["state"] == "warning"
    assert "process 999999999 is gone" in row["detail"]
    Path(verbs.path, "state/runner.lock").write_text(str(os.getpid()), encoding="utf-8")
    assert "state/runner.lock" not in answers(verbs)


# --- agents ---------------------------------------------------------------------------------


def crashed(verbs: Verbs, agent: str = "clay") -> str:
    """A session whose process is gone."""
    with Home.open(verbs.path, clock=verbs.clock) as home, Agent(home, agent) as one:
        return one.start(Start("research"), owner=this_process()._replace(started=1)).id


def test_a_crashed_session_is_reported_and_put_on_record_by_fix(verbs: Verbs) -> None:
    session = crashed(verbs)
    row = answers(verbs)["clay"]
    assert session in row["detail"]
    assert "doctor --fix" in row["fix"]
    planned = {row["check"] for row in verbs.rows("doctor", fix=True, dry_run=True)}
    assert session in planned
    assert verbs.rows("session list", agent="clay")[0]["ended_at"] is None
    mended = [row["check"] for row in verbs.rows("doctor", fix=True) if row["state"] == "mended"]
    assert session in mended
    [ended] = verbs.rows("session list", agent="clay")
    assert (ended["status"], ended["cause"]) == ("error", "crashed")


def test_what_is_missing_is_made_by_fix_and_nothing_is_overwritten(verbs: Verbs) -> None:
    folder = Path(verbs.path, "state/clay")
    for name in ("tasks.json", "report.json", "memory.md"):
        (folder / name).unlink()
    kept = (folder / "session.json").read_bytes()
    assert "tasks.json" in answers(verbs)["clay"]["detail"]
    verbs("doctor", fix=True, dry_run=True)
    assert not (folder / "tasks.json").exists()
    found = verbs("doctor", fix=True)
    assert (found.exit_code, found.counts["mended"]) == (0, 3)
    assert json.loads((folder / "tasks.json").read_bytes())["tasks"] == []
    assert (folder / "session.json").read_bytes() == kept


def test_an_unreadable_report_is_broken_until_fix_folds_it_anew(verbs: Verbs) -> None:
    file = Path(verbs.path, "state/clay/report.json")
    before = file.read_bytes()
    file.write_bytes(b'{"agent": ')
    row = answers(verbs)["clay"]
    assert row["state"] == "broken"
    assert "report.json is unreadable: not JSON" in row["detail"]
    assert verbs("doctor", fix=True).exit_code == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize("what", ["stale", "silent", "blocked", "empty notes"])
def test_what_an_agent_needs_is_said_with_what_to_do_next(
    verbs: Verbs, clock: Turner, what: str
) -> None:
    match what:
        case "stale":
            clock.advance(3 * DAY)
            said, agent = "stale: report 3d old", "clay"
        case "silent":
            clock.advance(600)
            said, agent = "offline while busy on wo-2", "rio"
        case "blocked":
            verbs("session start", agent="clay")
            verbs("session end", agent="clay", outcome="completed", blocked_by="a key")
            said, agent = "blocked by a key", "clay"
        case _:
            Path(verbs.path, "state/clay/memory.md").write_bytes(b"")
            said, agent = "memory.md is empty", "clay"
    found = [row for row in verbs.rows("doctor") if row["check"] == agent]
    assert said in [row["detail"] for row in found]
    assert all(row["fix"] for row in found)
    assert verbs("doctor").exit_code == 1


def test_what_doctor_says_of_a_blocked_agent_helps(verbs: Verbs) -> None:
    verbs("session start", agent="clay")
    verbs("session end", agent="clay", outcome="completed", blocked_by="a key")
    assert "--blocked-by ''" in answers(verbs)["clay"]["fix"]
    verbs("session set", agent="clay", blocked_by="")
    assert "clay" not in answers(verbs)


def test_a_clock_behind_the_newest_day_is_warned_about(verbs: Verbs, clock: Turner) -> None:
    clock.step(-DAY)
    row = answers(verbs)["clock"]
    assert row["state"] == "warning"
    assert "2023-11-13" in row["detail"]
    assert "2023-11-14" in row["detail"]


def test_a_torn_line_is_a_harmless_trace(verbs: Verbs) -> None:
    with day_files(verbs.path, "rio")[0].open("ab") as file:
        file.write(b'{"half":')
    verbs.write("after")
    assert verbs("check").exit_code == 0
    assert [row["kind"] for row in verbs.rows("check", all=True)] == ["bad_line"]
    assert "1 harmless" in answers(verbs)["integrity"]["detail"]


def test_people_learn_from_check_that_all_is_well(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("text")
    ran = shell("check")
    assert (ran.code, ran.out) == (0, "")
    assert "broken 0" in ran.err


# --- rebuild --------------------------------------------------------------------------------


def test_rebuild_makes_the_same_views_again(verbs: Verbs) -> None:
    file = Path(verbs.path, "state/rio/status.json")
    before = file.read_bytes()
    file.unlink()
    file.with_name(".status.json.view").unlink()
    done = verbs("rebuild")
    assert done.applied
    assert "state/rio/status.json" in done.detail
    assert file.read_bytes() == before
    assert verbs("check").exit_code == 0


def test_rebuild_keeps_a_hand_edited_view_and_says_so(verbs: Verbs) -> None:
    file = damaged(verbs, "stale view")
    edited = file.read_bytes()
    verbs("rebuild")
    [aside] = file.parent.glob("status.json.edited-*")
    assert aside.read_bytes() == edited
    assert any(aside.name in warning for warning in verbs.warnings)
    assert status_on_disk(verbs.path, "rio")["state"] == "busy"


def test_rebuild_makes_every_view_of_every_agent_anew(verbs: Verbs) -> None:
    for role in ("", "miner"):
        verbs("session start", agent="clay", type="extract", role=role)
    folder = Path(verbs.path, "state/clay")
    names = ("status", "report", "session", "session.miner", "metrics")
    before = {name: (folder / f"{name}.json").read_bytes() for name in names}
    for name in names:
        (folder / f"{name}.json").unlink()
        (folder / f".{name}.json.view").unlink()
    done = verbs("rebuild")
    assert all(f"state/clay/{name}.json" in done.detail for name in names)
    assert {name: (folder / f"{name}.json").read_bytes() for name in names} == before


@pytest.mark.parametrize("name", ["report", "session", "metrics"])
def test_rebuild_keeps_aside_whichever_view_was_edited(verbs: Verbs, name: str) -> None:
    file = Path(verbs.path, f"state/clay/{name}.json")
    edited = file.read_bytes().replace(b'"clay"', b'"mine"')
    file.write_bytes(edited)
    verbs("rebuild")
    [aside] = file.parent.glob(f"{name}.json.edited-*")
    assert aside.read_bytes() == edited
    assert any(aside.name in warning for warning in verbs.warnings)
    assert json.loads(file.read_bytes())["agent"] == "clay"


def test_rebuild_makes_no_status_for_an_agent_of_which_nothing_is_known(verbs: Verbs) -> None:
    verbs("rebuild")
    verbs("doctor", fix=True)
    for file in Path(verbs.path, "state").rglob("status.json"):
        assert is_status(json.loads(file.read_bytes())), file
    assert not Path(verbs.path, "state/clay/status.json").exists()


def test_rebuild_in_a_dry_run_says_what_it_would_do(verbs: Verbs) -> None:
    Path(verbs.path, "state/rio/status.json").unlink()
    done = verbs("rebuild", dry_run=True)
    assert (done.applied, done.dry_run) == (False, True)
    assert "would" in done.detail
    assert not Path(verbs.path, "state/rio/status.json").exists()


@pytest.mark.parametrize(
    ("line", "name", "near"),
    [
        ("[budget]\nagent_day = 1.0", "budget.agent_day", "did you mean budget.agent_day_usd?"),
        ("heartbeats = '60s'", "heartbeats", "did you mean heartbeat?"),
        ("[agents.rio]\nday_us = 3.0", "agents.rio.day_us", "did you mean agents.rio.day_usd?"),
        ("[agents.rio]\nmeasure.sources = 'x'", "agents.rio.measure.sources", ""),
        ("[nonsense]\nx = 1", "nonsense", "docs/files.md"),
    ],
)
def test_a_setting_that_nobody_reads_is_found(
    verbs: Verbs, line: str, name: str, near: str
) -> None:
    file = Path(verbs.path) / "holdfast.toml"
    file.write_text(f'format = 1\ntimezone = "UTC"\n{line}\n', encoding="utf-8")
    row = answers(verbs)["holdfast.toml"]
    assert (row["state"], row["detail"]) == ("warning", f"nobody reads {name}")
    assert near in row["fix"]


def test_every_setting_in_the_documentation_is_one_that_is_read(verbs: Verbs) -> None:
    text = (REPO / "docs/files.md").read_text(encoding="utf-8")
    documented = (
        text.partition("```toml\n")[2].partition("```")[0].replace("# throttle", "throttle")
    )
    file = Path(verbs.path) / "holdfast.toml"
    file.write_text(documented, encoding="utf-8")
    assert "park_after" in documented
    assert "holdfast.toml" not in answers(verbs)


@pytest.mark.parametrize("odd", ["a pipe among days", "a ledger that is a link", "a pipe as notes"])
def test_one_odd_file_keeps_nobody_else_from_being_looked_at(tmp_path: Path, odd: str) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "leo")
    for name in ("rio", "leo"):
        assert shell("ledger", "write", "--agent", name, "--event", "info", "x").code == 0
    match odd:
        case "a pipe among days":
            os.mkfifo(file := shell.home / "ledger/rio/2020-01-02.jsonl")
        case "a ledger that is a link":
            (file := shell.home / "ledger/rio").rename(tmp_path / "rio")
            file.symlink_to(tmp_path / "rio")
        case _:
            (file := shell.home / "state/rio/memory.md").unlink()
            os.mkfifo(file)
    alien = str(file.relative_to(shell.home))
    checked = shell("check", "--json")
    assert (alien, "alien") in {(row["key"], row["kind"]) for row in checked.rows()}
    for words in (("doctor",), ("doctor", "--fix")):
        assert alien in {row["check"] for row in shell(*words, "--json").rows()}
    verified = shell("ledger", "verify", "--json")
    states = {row["agent"]: row["state"] for row in verified.rows()}
    assert states == {"leo": "sound", "rio": "sound" if file.name == "memory.md" else "alien"}
    listed = shell("ledger", "list", "--json").rows()
    assert "leo" in {row["agent"] for row in listed}
    odd_ledger = file.name != "memory.md"
    tailed = shell("ledger", "tail", "--json")
    assert tailed.code == 0, tailed.err
    assert '"agent":"leo"' in tailed.out
    assert ("rio is left out" in tailed.err) == odd_ledger
    archived = shell("ledger", "archive", "--older-than", "2999-01-01", "--json")
    states = {(row["agent"], row["state"]) for row in archived.rows()}
    assert (("rio", "alien") in states) == odd_ledger
    assert archived.code == int(odd_ledger)


@pytest.mark.parametrize(
    ("place", "mode", "is_told"),
    [
        ("state/rio", 0o500, True),
        ("ledger/rio/.lock", 0o400, True),
        ("state/rio/journal.jsonl", 0o400, True),
        ("ledger/rio/2020-01-02.jsonl", 0o400, False),
        ("state/rio/memory.md", 0o400, False),
    ],
)
def test_doctor_names_what_this_user_may_not_write(
    tmp_path: Path, place: str, mode: int, is_told: bool
) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio")
    shell("ledger", "write", "--agent", "rio", "--event", "info", "x")
    file = shell.home / place
    if "2020" in place:
        file.touch(mode=0o600)
    file.chmod(mode)
    try:
        ran = shell("doctor", "--json", before=obey_modes)
    finally:
        file.chmod(mode | 0o200)
    told = {row["check"]: row for row in ran.rows() if "cannot be written" in row["detail"]}
    assert [*told] == ([place] if is_told else [])
    if is_told:
        assert told[place]["state"] == "broken"
        assert told[place]["detail"] == f"cannot be written: mode {mode:o}, owner {os.geteuid()}"
