"""Limits that are set from the command line, in a file that people write."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.spend.limits import limit, set_limits
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.ledger.shell import Shell

BY_HAND = """\
format = 1
timezone = "UTC"   # ours

# what we agreed on
[budget]
session_usd = 2    # two, not more

[agents.rio]
model = "scripted:echo"  # cheap
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    (made.home / "holdfast.toml").write_text(BY_HAND, encoding="utf-8")
    return made


def text_of(shell: Shell) -> str:
    return (shell.home / "holdfast.toml").read_text(encoding="utf-8")


def test_a_limit_is_set_where_it_stands_and_every_comment_stays(shell: Shell) -> None:
    done = shell("budget", "set", "--session", "3", "--fleet-day", "20", "--json").json()
    assert done["applied"]
    assert done["data"]["limits"] == {
        "budget.session_usd": {"before": 2.0, "after": 3.0},
        "budget.fleet_day_usd": {"before": None, "after": 20.0},
    }
    assert text_of(shell) == BY_HAND.replace(
        "session_usd = 2    # two, not more\n",
        "session_usd = 3.0    # two, not more\nfleet_day_usd = 20.0\n",
    )
    shown = shell("budget", "show", "rio", "--json").rows()
    assert (shown[0]["session_limit_usd"], shown[1]["limit_usd"]) == (3.0, 20.0)


def test_an_agent_has_limits_of_its_own_until_they_are_taken_away(shell: Shell) -> None:
    assert shell("budget", "set", "Rio", "--session", "1", "--day", "0").code == 0
    refused = shell("run", "--agent", "rio", "--json", "--", "true")
    assert refused.error()["code"] == "over_budget"
    done = shell("budget", "set", "rio", "--day", "none", "--session", "none")
    assert (
        done.out
        == "agents.rio.session_usd: 1 USD → no limit, agents.rio.day_usd: 0 USD → no limit\n"
    )
    assert text_of(shell) == BY_HAND
    again = shell("budget", "set", "rio", "--day", "none", "--json").json()
    assert not again["applied"]


def test_a_dry_run_says_what_would_be_and_changes_nothing(shell: Shell) -> None:
    done = shell("budget", "set", "--day", "5", "--dry-run", "--json").json()
    assert (done["applied"], done["dry_run"]) == (False, True)
    assert done["data"]["limits"] == {"budget.agent_day_usd": {"before": None, "after": 5.0}}
    assert text_of(shell) == BY_HAND


def test_what_makes_no_sense_is_refused_and_changes_nothing(shell: Shell) -> None:
    for words in ((), ("--session", "-1"), ("rio", "--fleet-day", "2"), ("a/b", "--day", "1")):
        assert shell("budget", "set", *words, "--json").code == 2
    assert text_of(shell) == BY_HAND


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "-inf", "1e9", "", "2,5", "two", "0x10"])
def test_a_limit_is_a_sum_of_money(text: str) -> None:
    with pytest.raises(UsageError):
        limit("--session", text)


_AMOUNTS = st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False))
_PATHS = st.sampled_from(
    [
        ("budget", "session_usd"),
        ("budget", "agent_day_usd"),
        ("budget", "fleet_day_usd"),
        ("agents", "rio", "session_usd"),
        ("agents", "rio", "day_usd"),
        ("agents", "ada", "day_usd"),
    ]
)
_TEXTS = st.sampled_from(
    [
        "",
        BY_HAND.partition("# ours\n")[2],
        "budget.session_usd = 4 # dotted\n",
        'budget = { session_usd = 1.5 } # in a line\n\n[agents.ada]\nmodel = "x:y"\n',
        "[agents]\nrio.session_usd = 1\n# end",
        "[ledger]\nextra_events = [\n  'a', # one\n]\n[agents.rio]\nmeasure.x = '*'\n",
    ]
)


@settings(max_examples=60)
@given(_TEXTS, st.lists(st.tuples(_PATHS, _AMOUNTS), min_size=1, max_size=5))
def test_nothing_but_the_limits_changes_however_the_file_is_written(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    steps: list[tuple[tuple[str, ...], float | None]],
) -> None:
    place = tmp_path_factory.mktemp("limits")
    with Home.open(str(place), create=True, timezone="UTC", clock=Turner()) as home:
        file = place / "holdfast.toml"
        file.write_text(f'format = 1\ntimezone = "UTC"\n{text}', encoding="utf-8")
        comments = [each for each in text.splitlines() if each.startswith("#")]
        wanted = {
            path: _at(tomllib.loads(file.read_text(encoding="utf-8")), path) for path, _ in steps
        }
        for path, usd in steps:
            before, after = set_limits(home, {path: usd})
            assert (before, after) == ({path: wanted[path]}, {path: usd})
            wanted[path] = usd
        written = file.read_text(encoding="utf-8")
        found = tomllib.loads(written)
        assert {path: _at(found, path) for path in wanted} == wanted
        assert _others(found) == _others(tomllib.loads(f'format = 1\ntimezone = "UTC"\n{text}'))
        assert all(each in written for each in comments)
        assert home.current_settings().budget("rio") is not None


def _at(found: object, path: tuple[str, ...]) -> object:
    for name in path:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return None if found == {} else found


def _others(found: object) -> object:
    """All but limits, and tables that have nothing else in them."""
    if not isinstance(found, dict):
        return found
    kept = {name: _others(each) for name, each in found.items() if not name.endswith("_usd")}
    return {name: each for name, each in kept.items() if each != {}}
