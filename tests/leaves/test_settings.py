"""holdfast.toml is parsed once, and refused where it means nothing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.settings import Budget, Settings, parse_settings
from holdfast.store.home import Home
from holdfast.testing import refused


def test_settings_have_standards_and_units() -> None:
    assert parse_settings(b"format = 1")[:6] == Settings()[:6]
    text = b"""
format = 1
timezone = "Europe/Berlin"
heartbeat = "2m"
offline_after = 90
[ledger]
extra_events = ["coffee", "tea"]
"""
    assert parse_settings(text)[:5] == (1, "Europe/Berlin", 120.0, 90.0, ("coffee", "tea"))
    for value, seconds in (('"1.5s"', 1.5), ('"1h"', 3600), ('"1d"', 86400), ("0.5", 0.5)):
        assert parse_settings(b"format=1\nheartbeat=" + value.encode()).heartbeat == seconds
    assert parse_settings(b"format = 1\n[ledger]\nother = 1").extra_events == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"format = ",
        b"format = '1'",
        b"format = true",
        b"format = 1.0",
        b"\xff\xfe",
        b"format = 1\nformat = 1",
        b"format = 1\nx = " + b"[" * 100_000,
        b"format = 1\ntimezone = 'Nowhere/Land'",
        b"format = 1\ntimezone = 7",
        # A number that Python refuses to write in decimals.
        b"format = 1\ntimezone = 0x" + b"f" * 4_000,
        b"format = 1\nheartbeat = 0x" + b"f" * 4_000,
        b"format = 1\nheartbeat = 'soon'",
        b"format = 1\nheartbeat = ''",
        b"format = 1\nheartbeat = 's'",
        b"format = 1\nheartbeat = '5y'",
        b"format = 1\nheartbeat = -5",
        b"format = 1\nheartbeat = 0",
        b"format = 1\nheartbeat = nan",
        b"format = 1\nheartbeat = inf",
        b"format = 1\nheartbeat = '1e999s'",
        b"format = 1\nheartbeat = true",
        b"format = 1\nheartbeat = [1]",
        b"format = 1\nledger = 7",
        b"format = 1\n[ledger]\nextra_events = 'coffee'",
        b"format = 1\n[ledger]\nextra_events = [1]",
    ],
    ids=lambda text: repr(text[:40]),
)
def test_settings_that_mean_nothing_are_refused(text: bytes) -> None:
    with refused(ConfigError):
        parse_settings(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 100_000_000),
        ("[log]", 100_000_000),
        ('[log]\nrotate_at = "5MB"', 5_000_000),
        ('[log]\nrotate_at = "64 KiB"', 65_536),
        ('[log]\nrotate_at = "2GB"', 2_000_000_000),
        ('[log]\nrotate_at = "300B"', 300),
        ("[log]\nrotate_at = 4096", 4096),
    ],
)
def test_the_size_at_which_a_log_goes_on_is_a_setting(text: str, size: int) -> None:
    assert parse_settings(f"format = 1\n{text}\n".encode()).rotate_at == size


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("log = 5", "log is not a table"),
        ('log = "100MB"', "log is not a table"),
        ("[log]\nrotate_at = 0", "rotate_at"),
        ("[log]\nrotate_at = -1", "rotate_at"),
        ("[log]\nrotate_at = 1.5", "rotate_at"),
        ("[log]\nrotate_at = true", "rotate_at"),
        ('[log]\nrotate_at = "much"', "rotate_at"),
        ('[log]\nrotate_at = "100 TB"', "rotate_at"),
        ('[log]\nrotate_at = "9999999GB"', "rotate_at"),
        ('[log]\nrotate_at = ["1MB"]', "rotate_at"),
    ],
)
def test_a_size_that_is_none_is_refused_with_a_hint(text: str, names: str) -> None:
    with refused(ConfigError, names):
        parse_settings(f"format = 1\n{text}\n".encode())


def test_what_the_file_leaves_out_has_a_standard() -> None:
    found = parse_settings(b"format = 1")
    assert (found.stale_after, found.alert_every, found.park_after) == (172800.0, 1800.0, 3)
    assert (found.throttle, found.layout, found.default_model) == (None, None, None)
    assert (found.model("rio"), dict(found.measure("rio"))) == (None, {})
    assert found.budget("rio") == found.budget() == Budget()
    assert list(found.unread()) == []


def test_what_the_file_says_is_typed() -> None:
    found = parse_settings(
        b"""
format = 1
stale_after = "1w"
alert_every = 90
layout = "luka"
heartbeats = 1
ledger.throttle = "1.5 m"
tasks.park_after = 5
models.default = "scripted:echo"
budget = { session_usd = 1, agent_day_usd = 2, fleet_day_usd = 3 }
agents.rio = { model = "scripted:a", day_usd = 0, measure.sources_archived = "*.md" }
"""
    )
    assert (found.stale_after, found.alert_every, found.throttle) == (604800.0, 90.0, 90.0)
    assert (found.layout, found.park_after) == ("luka", 5)
    assert (found.model("rio"), found.model("clay")) == ("scripted:a", None)
    assert found.default_model == "scripted:echo"
    assert found.measure("rio") == {"sources_archived": "*.md"}
    assert (found.budget("rio"), found.budget("clay")) == (Budget(1, 0, 3), Budget(1, 2, 3))
    assert list(found.unread()) == [("heartbeats", "heartbeat")]


@pytest.mark.parametrize(
    ("text", "names", "read"),
    [
        ("stale_after = 'soon'", "stale_after", lambda found: found.stale_after),
        ("alert_every = -1", "alert_every", lambda found: found.alert_every),
        ("ledger.throttle = 0", "ledger.throttle", lambda found: found.throttle),
        ("tasks.park_after = 0", "tasks.park_after", lambda found: found.park_after),
        ("tasks = 1", "tasks is not a table", lambda found: found.park_after),
        ("agents = 1", "agents is not a table", lambda found: found.model("rio")),
        ("agents.rio = 1", "agents.rio is not a table", lambda found: found.measure("rio")),
        ("budget.session_usd = nan", "session_usd", lambda found: found.budget()),
        ("budget.session_usd = true", "session_usd", lambda found: found.budget()),
        # Too long for a float.
        ("budget.session_usd = 0x" + "f" * 4_000, "session_usd", lambda found: found.budget()),
        ("budget.session = 1", "has no session", lambda found: found.budget()),
    ],
)
def test_a_mistake_stops_only_what_reads_it(
    text: str, names: str, read: Callable[[Settings], object]
) -> None:
    found = parse_settings(f"format = 1\n{text}\n".encode())
    with refused(ConfigError, names):
        read(found)


COUNTED = """
import sys
opened = []
sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "open" else None)
from holdfast.cli.main import main
code = main()
names = [str(name).rpartition("/")[2] for name in opened]
print(names.count("holdfast.toml"), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", ["ledger write --agent rio --event info 'it is so'", "status"])
def test_a_verb_opens_the_file_once(tmp_path: Path, words: str) -> None:
    path = str(tmp_path / "home")
    with Home.open(path, create=True, timezone="UTC"):
        pass
    ran = subprocess.run(
        [sys.executable, "-c", COUNTED, "--home", path, *shlex.split(words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (0, "1"), ran.stderr
