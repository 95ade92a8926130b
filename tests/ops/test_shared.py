"""One open home for all calls of a server."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, NotFound
from holdfast.ops.context import Context
from holdfast.ops.opening import Shared
from holdfast.ops.table import TABLE
from holdfast.store.home import Home
from tests.recorder import recording

STATUS = TABLE.of_noun(None)["status"]
WRITE = TABLE.of_noun("ledger")["write"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Home.open(str(tmp_path / "home"), create=True, timezone="UTC").close()
    return tmp_path / "home"


@pytest.fixture
def shared(path: Path) -> Shared:
    return Shared(str(path), None, SystemClock())


def a_call(shared: Shared) -> Context:
    return Context(shared.path, shared=shared)


def test_calls_share_a_home_and_none_of_them_closes_it(shared: Shared) -> None:
    with a_call(shared) as one:
        first = one.home()
    with recording() as found, a_call(shared) as other:
        assert other.home() is first
        other.home().keys()
    assert not found.files["holdfast.toml"]


def test_a_value_of_a_log_is_read_again_when_the_log_changed(shared: Shared) -> None:
    def events() -> int:
        """Of all calls so far, by one that keeps the count."""
        with a_call(shared) as call:
            log = call.home().log("ledger/rio")
            return call.once("events", "ledger/rio", lambda: len(list(log.read())))

    def write() -> None:
        with a_call(shared) as call:
            WRITE.answer(call, {"agent": "rio", "event": "info", "text": "one more"})

    write()
    before = events()
    with recording() as found:
        assert events() == before
    assert not found.opens
    write()
    assert events() > before


def test_changed_settings_are_read_by_the_next_call(shared: Shared, path: Path) -> None:
    with a_call(shared) as before:
        assert before.home().settings.heartbeat == 60
        settings = path / "holdfast.toml"
        settings.write_text('format = 1\ntimezone = "UTC"\nheartbeat = "5m"\n', encoding="utf-8")
        with a_call(shared) as after:
            assert after.home().settings.heartbeat == 300
        assert before.home().settings.heartbeat == 60
        assert before.home().keys()


def test_settings_that_cannot_be_read_are_told_until_they_are_mended(
    shared: Shared, path: Path
) -> None:
    with a_call(shared) as before:
        before.home()
    good = (path / "holdfast.toml").read_text("utf-8")
    (path / "holdfast.toml").write_text("format = ", encoding="utf-8")
    for _ in range(2):
        with a_call(shared) as call, pytest.raises(ConfigError):
            call.home()
    (path / "holdfast.toml").write_text(good, encoding="utf-8")
    with a_call(shared) as call:
        assert call.home().keys()


def test_another_folder_at_the_path_is_the_home_from_then_on(shared: Shared, path: Path) -> None:
    with a_call(shared) as call:
        WRITE.answer(call, {"agent": "rio", "event": "info", "text": "of the first"})
    path.rename(path.with_name("away"))
    with a_call(shared) as call, pytest.raises(NotFound):
        call.home()
    Home.open(str(path), create=True, timezone="UTC").close()
    with a_call(shared) as call:
        assert STATUS.answer(call, {})["rows"] == []


def test_many_threads_use_it_while_its_settings_change(shared: Shared, path: Path) -> None:
    settings = path / "holdfast.toml"
    text = settings.read_text("utf-8")
    descriptors = len(os.listdir("/proc/self/fd"))

    def work(number: int) -> int:
        if number % 10 == 0:
            settings.with_suffix(f".{number}").write_text(f"{text}# {number}\n", encoding="utf-8")
            settings.with_suffix(f".{number}").replace(settings)
        with a_call(shared) as call:
            WRITE.answer(call, {"agent": "rio", "event": "info", "text": f"{number}"})
            return len(STATUS.answer(call, {})["rows"])

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(80))) == {1}
    shared.close()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    with a_call(shared) as call:
        rows = TABLE.of_noun("ledger")["list"].answer(call, {"agent": "rio", "limit": 0})["rows"]
    assert sorted(int(row["summary"]) for row in rows) == list(range(80))
