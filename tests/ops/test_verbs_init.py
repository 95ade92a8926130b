"""`init` and `path`: making a home and agents, and finding them on disk."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from holdfast.errors import BadName, ConfigError, NotFound
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import PROGRAM, Shell, Verbs, on_its_own


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    return Verbs(path, clock)


def content(home: str) -> dict[str, bytes]:
    files = [file for file in Path(home).rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def test_init_makes_a_home_with_settings_that_people_can_read(verbs: Verbs) -> None:
    done = verbs("init", timezone="Europe/Berlin")
    assert (done.target, done.applied, done.dry_run) == (verbs.path, True, False)
    text = Path(verbs.path, "holdfast.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text) == {
        "format": 1,
        "timezone": "Europe/Berlin",
        "heartbeat": "60s",
        "offline_after": "300s",
    }


def test_init_makes_agents_and_says_which(verbs: Verbs) -> None:
    done = verbs("init", agent=["rio", "clay"], timezone="UTC")
    assert done.data["made"] == ["rio", "clay"]
    assert "rio, clay" in done.detail
    manifest = json.loads(Path(verbs.path, "state/rio/manifest.json").read_bytes())
    assert manifest == {"agent_id": "rio", "created_at": "2023-11-14T12:00:00Z"}


def test_doing_it_again_changes_nothing_and_is_no_failure(verbs: Verbs, clock: Turner) -> None:
    verbs("init", agent=["rio"], timezone="UTC")
    verbs.write("text")
    before = content(verbs.path)
    clock.advance(DAY)

    done = verbs("init", agent=["rio"])
    assert (done.applied, done.exit_code, done.data["made"]) == (False, 0, [])
    assert "already there: rio" in done.detail
    assert content(verbs.path) == before


def test_only_what_is_missing_is_made(verbs: Verbs) -> None:
    verbs("init", agent=["rio"], timezone="UTC")
    done = verbs("init", agent=["rio", "clay"])
    assert (done.applied, done.data["made"]) == (True, ["clay"])


def test_a_dry_run_touches_nothing_and_says_what_it_would_do(verbs: Verbs) -> None:
    done = verbs("init", agent=["rio"], dry_run=True)
    assert (done.applied, done.dry_run) == (False, True)
    assert verbs.path in done.detail
    assert "rio" in done.detail
    assert not Path(verbs.path).exists()


def test_a_dry_run_knows_what_is_already_there(verbs: Verbs) -> None:
    verbs("init", agent=["rio"], timezone="UTC")
    before = content(verbs.path)
    done = verbs("init", agent=["rio", "clay"], dry_run=True)
    assert "clay" in done.detail
    assert "would make a home" not in done.detail
    assert content(verbs.path) == before


def test_a_dry_run_names_the_place_that_the_environment_chooses(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ran = shell.run([PROGRAM, "init", "--dry-run"], env={"HOLDFAST_HOME": str(shell.home)})
    assert ran.code == 0
    assert str(shell.home) in ran.out
    assert not shell.home.exists()


def test_names_that_differ_only_in_case_are_one_agent(verbs: Verbs) -> None:
    verbs("init", agent=["Rio"], timezone="UTC")
    assert verbs("init", agent=["rio"]).applied is False
    verbs.write("one", agent="rio")
    verbs.write("two", agent="RIO")

    assert [row["agent"] for row in verbs.rows("status")] == ["rio"]
    assert verbs.texts(agent="Rio") == ["one", "two"]
    assert {row["agent"] for row in verbs.rows("ledger list")} == {"rio"}
    folders = [each.name for each in Path(verbs.path, "state").iterdir() if each.is_dir()]
    assert folders == ["rio"]
    assert json.loads(Path(verbs.path, "state/rio/manifest.json").read_bytes())["agent_id"] == "Rio"


@pytest.mark.parametrize("name", ["a.b", "a/b", "..", "-x", "", "é", "x" * 65, "a b", ".holdfast"])
def test_a_name_that_is_no_agent_id_is_refused_before_anything_is_made(
    verbs: Verbs, name: str
) -> None:
    with refused(BadName):
        verbs("init", agent=["rio", name])
    assert not Path(verbs.path).exists()


def test_a_name_of_64_characters_is_fine(verbs: Verbs) -> None:
    assert verbs("init", agent=["x" * 64], timezone="UTC").applied


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+25:00", "utc+1", "../../etc/passwd", ""])
def test_an_unknown_zone_is_refused_before_anything_is_made(verbs: Verbs, zone: str) -> None:
    with refused(ConfigError):
        verbs("init", timezone=zone)
    assert not Path(verbs.path, "holdfast.toml").exists()


def test_the_zone_of_a_home_stays_and_asking_for_another_is_refused(verbs: Verbs) -> None:
    verbs("init", timezone="UTC")
    with refused(ConfigError, "UTC"):
        verbs("init", timezone="Europe/Berlin")
    assert verbs("init", timezone="UTC").exit_code == 0


def test_a_home_made_by_the_way_has_the_zone_of_the_machine(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    words = ("ledger", "write", "--agent", "rio", "--event", "info", "text")
    assert shell(*words, env={"TZ": "Asia/Bangkok"}).code == 0
    settings = tomllib.loads((shell.home / "holdfast.toml").read_text(encoding="utf-8"))
    assert settings["timezone"] == "Asia/Bangkok"


# --- path -----------------------------------------------------------------------------------


@pytest.fixture
def settled(verbs: Verbs, clock: Turner) -> Verbs:
    """A home where a session of rio began on the 14th and went on after midnight."""
    verbs("init", timezone="UTC")
    verbs.write("go", event="task_start", task="wo-1")
    clock.advance(DAY)
    verbs.write("done", event="task_result", task="wo-1")
    return verbs


@pytest.mark.parametrize(
    ("id", "place"),
    [
        ("rio", "state/rio"),
        ("RIO", "state/rio"),
        ("2023-11-14_rio_001", "ledger/rio/2023-11-14.jsonl"),
        ("ledger/rio", "ledger/rio"),
        ("ledger/rio/2023-11-15.jsonl", "ledger/rio/2023-11-15.jsonl"),
        ("state/rio/status.json", "state/rio/status.json"),
        ("holdfast.toml", "holdfast.toml"),
        ("ledger", "ledger"),
    ],
)
def test_path_says_where_a_thing_lies(settled: Verbs, id: str, place: str) -> None:
    shown = settled("path", id=id)
    assert shown.text == f"{settled.path}/{place}"
    assert shown.data == {"id": id, "path": shown.text}
    assert Path(shown.text).exists()


def test_path_alone_is_the_home(settled: Verbs) -> None:
    assert settled("path").text == settled.path


@pytest.mark.parametrize(
    "id",
    ["nobody", "ledger/nobody", "2023-11-14_nobody_001", "2023-11-14_rio_077", "ledger/ri"],
)
def test_what_is_not_there_is_not_found(settled: Verbs, id: str) -> None:
    with refused(NotFound, id):
        settled("path", id=id)


@pytest.mark.parametrize("id", ["../etc/passwd", "/etc/passwd", ".mask-key", "a//b", ""])
def test_what_can_be_no_name_of_ours_is_refused(settled: Verbs, id: str) -> None:
    with refused(BadName):
        settled("path", id=id)


def test_path_can_be_used_in_a_script(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("text")
    ran = shell("path", "ledger/cls")
    assert (ran.code, ran.out, ran.err) == (0, f"{shell.home}/ledger/cls\n", "")
