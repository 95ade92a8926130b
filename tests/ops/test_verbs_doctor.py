"""`check`, `doctor` and `rebuild`: what is wrong with a home, and what can be mended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import DAY, Turner
from tests.ledger.shell import Shell, Verbs, day_files, is_status, on_its_own, status_on_disk


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
    # Settings, the manifests of two agents, a day of events and a status.
    assert counts["files"] == 5
    found = verbs("doctor")
    assert found.exit_code == 0
    assert list(answers(verbs)) == ["home", "disk", "file system", "git", "clock", "integrity"]
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
