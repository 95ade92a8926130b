"""A home: where it is, what its settings say, and what it tells of oddities."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    ConfigError,
    DiskFull,
    NewerFormat,
    NotFound,
    NotOurs,
)
from holdfast.settings import SETTINGS, parse_settings
from holdfast.store.home import Home, find, local_zone
from holdfast.store.primitives import Line
from holdfast.testing import Turner, lines_of, refused
from tests.store.faults import FaultyVfs, failing


def audited(home: Home) -> list[Any]:
    return [line.record for line in home.log("audit").read() if isinstance(line, Line)]


# --- where it is ------------------------------------------------------------------------------


def test_a_home_that_is_not_there_is_not_made_by_looking(tmp_path: Path, no_leak: None) -> None:
    for name in ("absent", "absent/below"):
        with refused(NotFound, "no Holdfast home"):
            Home.open(str(tmp_path / name))
    with refused(NotFound, "no Holdfast home"):
        Home.open(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_home_is_made_once_and_found_again(tmp_path: Path, no_leak: None) -> None:
    path = str(tmp_path / "a/b")
    with Home.open(path, create=True, timezone="+07:00") as home:
        assert home.settings.timezone == "+07:00"
        assert home.path == path
    text = Path(path, SETTINGS).read_bytes()
    with Home.open(path, create=True, timezone="UTC") as home:
        assert home.settings.timezone == "+07:00", "fixed when it was made"
    assert Path(path, SETTINGS).read_bytes() == text
    assert b"format = 1" in text


def test_a_file_is_no_home(tmp_path: Path, no_leak: None) -> None:
    (tmp_path / "file").write_bytes(b"")
    for create in (False, True):
        with refused(NotOurs, "not a directory"):
            Home.open(str(tmp_path / "file"), create=create)


def test_the_environment_names_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", "/some/where")
    assert find() == "/some/where"


def test_the_nearest_home_above_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / "a/.holdfast").mkdir(parents=True)
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/.holdfast").write_bytes(b"only a file")
    monkeypatch.chdir(tmp_path / "a/b/c")
    assert find() == str(tmp_path / "a/.holdfast")
    monkeypatch.chdir(tmp_path)
    assert find() == str(tmp_path / ".holdfast")


def test_without_any_the_users_data_directory_is_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir("/")
    assert find() == str(tmp_path / "holdfast")
    with refused(NotFound):
        Home.open()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_home_of_somebody_else_is_not_taken_by_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    (tmp_path / ".holdfast").mkdir()
    os.chown(tmp_path / ".holdfast", 65534, 65534)
    monkeypatch.chdir(tmp_path)
    with refused(NotOurs, "belongs to somebody else"):
        find()


def test_in_a_working_directory_that_is_gone_the_users_home_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert find() == str(tmp_path / "holdfast")


# --- settings ---------------------------------------------------------------------------------


def test_a_home_of_a_newer_holdfast_is_left_alone(path: str, home: Home, no_leak: None) -> None:
    Path(path, SETTINGS).write_bytes(b"format = 2")
    with refused(NewerFormat, "format 2"):
        Home.open(path)
    Path(path, SETTINGS).write_bytes(b"format = 0x" + b"f" * 4_000)
    with refused(NewerFormat, "an endless number"):
        Home.open(path)


def test_settings_that_changed_are_read_again_and_only_then(
    path: str, home: Home, no_leak: None
) -> None:
    first = home.current_settings()
    assert home.current_settings() is first
    file = Path(path, SETTINGS)
    file.write_text(first_text := file.read_text("utf-8") + "heartbeat_of = 1\n", "utf-8")
    assert home.current_settings() is home.settings
    assert [name for name, _ in home.settings.unread()] == ["heartbeat_of"]
    file.unlink()
    assert [name for name, _ in home.current_settings().unread()] == ["heartbeat_of"]
    file.write_text(first_text + "=", "utf-8")
    with refused(ConfigError, "cannot be read"):
        home.current_settings()


def test_a_home_is_not_made_in_an_unknown_zone(tmp_path: Path, no_leak: None) -> None:
    with refused(ConfigError):
        Home.open(str(tmp_path / "home"), create=True, timezone="Nowhere/Land")
    assert not (tmp_path / "home" / SETTINGS).exists()


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("Etc/UTC", "UTC"),
        ("UTC", "UTC"),
        ("Nowhere/Land", "UTC"),
        (":/etc/localtime", "UTC"),
        ("CET-1CEST", "UTC"),
        ("../../etc/passwd", "UTC"),
    ],
)
def test_the_zone_of_the_machine_is_taken_if_it_has_a_name(
    name: str, zone: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TZ", name)
    assert local_zone() == zone
    with Home.open(str(tmp_path / "home"), create=True) as home:
        assert home.settings.timezone == zone


def test_the_zone_of_the_machine_has_a_name_without_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    assert parse_settings(f'format = 1\ntimezone = "{local_zone()}"'.encode())


def test_a_home_knows_its_day(path: str, clock: Turner) -> None:
    with Home.open(path, create=True, timezone="+14:00", clock=clock) as home:
        assert home.day() == "2023-11-15"
        clock.advance(22 * 3600)
        assert home.day() == "2023-11-16"


# --- secrets ----------------------------------------------------------------------------------


def test_the_same_secret_has_the_same_tag_in_one_home_only(tmp_path: Path) -> None:
    tags: list[list[str]] = []
    for name in ("one", "two"):
        for _ in range(2):
            with Home.open(str(tmp_path / name), create=True) as home:
                log = home.log("a.jsonl")
                log.append({"password": "hunter2"})
                tags.append([line.record["password"] for line in lines_of(log)])
                log.close()
    assert len(set(tags[1])) == len(set(tags[3])) == 1
    assert tags[1] != tags[3]
    for file in (tmp_path / "one").rglob("*"):
        assert b"hunter2" not in (file.read_bytes() if file.is_file() else b"")


def test_a_damaged_key_of_the_mask_lets_no_secret_through(home: Home, path: str) -> None:
    log = home.log("a.jsonl")
    Path(path, ".mask-key").write_bytes(b"not hex")
    with refused(ConfigError, "damaged"):
        log.append({"password": "hunter2"})
    assert log.append({"n": 1}).seq == 1, "where there is no secret, no key is needed"
    log.close()


# --- oddities ---------------------------------------------------------------------------------


def test_an_oddity_is_told_once(home: Home, path: str, clock: Turner) -> None:
    for _ in range(3):
        home.notice("odd", "this")
        home.notice("odd", "that")
    with Home.open(path, clock=clock) as again:
        again.notice("odd", "this")
    found = [(event["event"], event["detail"]) for event in audited(home)]
    assert found == [("odd", "this"), ("odd", "that")]


def test_a_clock_that_went_back_is_one_event_for_each_log(home: Home, clock: Turner) -> None:
    logs = [home.log("ledger/rio"), home.log("ledger/clay")]
    for log in logs:
        log.append({"n": 0})
    clock.step(-86_400)
    for _ in range(5):
        for log in logs:
            log.append({"n": 1})
    events = audited(home)
    assert [event["event"] for event in events] == ["clock_went_back"] * 2
    assert "ledger/rio" in events[0]["detail"]
    assert "2023-11-13" in events[0]["detail"]
    for log in logs:
        log.close()


def test_the_audit_log_itself_bears_a_clock_that_went_back(home: Home, clock: Turner) -> None:
    log = home.log("audit")
    log.append({"event": "x"})
    clock.step(-86_400)
    log.append({"event": "y"})
    home.notice("odd", "this")
    assert [event["event"] for event in audited(home)] == ["x", "y", "odd"]
    log.close()


def test_an_audit_log_that_cannot_be_written_hurts_nobody(
    home: Home, path: str, clock: Turner
) -> None:
    Path(path, "audit").write_bytes(b"in the way")
    log = home.log("ledger/rio")
    log.append({"n": 0})
    clock.step(-86_400)
    assert log.append({"n": 1}).seq == 2
    home.notice("odd", "this")
    log.close()


# --- what else --------------------------------------------------------------------------------


def test_keys_are_of_visible_files_only(home: Home, path: str) -> None:
    home.document("a/b.md").replace(b"x")
    Path(path, "a/.hidden").write_bytes(b"")
    Path(path, "a/.dir").mkdir()
    Path(path, "a/link").symlink_to("b.md")
    os.mkfifo(Path(path, "a/fifo"))
    assert home.keys("a") == ["a/b.md"]
    assert home.keys() == ["a/b.md", "holdfast.toml"]
    assert home.keys("a/absent") == []


def test_a_directory_can_be_looked_into(home: Home) -> None:
    home.document("a/b.md").replace(b"x")
    with home.opened_dir("a") as inner:
        assert inner is not None
        assert "b.md" in inner.names()
    with home.opened_dir() as outer:
        assert outer is not None
    assert "a" in outer.names(), "the root stays open"
    with home.opened_dir("absent") as absent:
        assert absent is None


def test_making_a_home_on_a_full_disk_is_told(tmp_path: Path, no_leak: None) -> None:
    vfs = FaultyVfs()
    vfs.fault("write", failing(28), times=None)
    path = str(tmp_path / "home")
    with refused(DiskFull):
        Home.open(path, create=True, vfs=vfs)
    vfs.heal()
    with Home.open(path, create=True, vfs=vfs) as home:
        assert home.vfs is vfs
