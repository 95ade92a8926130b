"""A process is not taken for another one that has its number."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from holdfast import process
from holdfast.clock import SystemClock
from holdfast.process import alive, lock_holder, process_start, this_process
from tests.store.children import child, state_when


def test_a_process_is_known_by_more_than_its_number() -> None:
    me = this_process()
    assert alive(me) is True
    assert me.pid == os.getpid()
    assert alive(me._replace(started=me.started + 1)) is False, "its number was used again"
    assert alive(me._replace(boot="before")) is False
    assert alive(me._replace(pid=2**22 + 1)) is False
    assert alive(me._replace(pid=2**22 + 1, started=0)) is False, "nobody has that number"
    assert process_start(2**22 + 1) == 0


def test_a_process_lives_on_when_its_machine_gets_another_name() -> None:
    assert alive(this_process()._replace(host="as it was called before"))


def test_a_process_of_another_machine_is_not_dead_because_our_boot_is_another() -> None:
    me = this_process()
    assert alive(me._replace(host="elsewhere/1", boot="theirs")) is None
    machine = me.host.partition("/")[0]
    assert alive(me._replace(host=f"{machine}/1", boot="before")) is False
    assert alive(me, seen_from="elsewhere/1") is None
    assert alive(me._replace(boot="before"), seen_from="elsewhere/1") is None


def test_where_the_kernel_names_no_boot_the_name_of_the_machine_has_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SystemClock, "boot", lambda self: "")
    me = this_process()
    assert alive(me) is True
    assert alive(me._replace(host="elsewhere")) is None


def test_a_number_of_another_pid_namespace_tells_nothing_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me = this_process()
    machine, _, namespace = me.host.partition("/")
    other = me._replace(host=f"{machine}/1{namespace}")
    assert (alive(other), alive(me)) == (None, True)
    assert alive(me._replace(host=machine)) is True, "an old record names none"
    assert alive(other._replace(boot="before")) is False
    monkeypatch.setattr(process, "_NAMESPACE", "/proc/self/ns/none")
    assert this_process().host == machine
    assert alive(other) is True


def test_nobody_can_have_started_with_the_number_of_an_owner_in_the_tick_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel tells the start of a process in ticks, and within one a number can be reused."""

    def tick() -> int:
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))

    monkeypatch.setattr(process, "process_start", lambda pid: tick())
    monkeypatch.setattr(process, "own_start", process.own_start.__wrapped__)
    owner = this_process()
    assert tick() > owner.started


def test_a_child_that_was_forked_has_a_start_of_its_own(tmp_path: Path) -> None:
    ours = this_process().started
    if (child := os.fork()) == 0:
        (tmp_path / "started").write_text(str(this_process().started))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert int((tmp_path / "started").read_text()) > ours


def test_a_dead_process_is_not_alive_even_before_it_is_reaped() -> None:
    with child("say(os.getpid())\nlisten()\n") as made:
        made.hear()
        owner = this_process()._replace(pid=made.pid, started=process_start(made.pid))
        assert alive(owner) is True
        made.process.kill()
        assert state_when(made.pid, lambda state: state == "Z") == "Z"
        assert alive(owner) is False


def test_a_holder_is_named_only_if_there_is_no_doubt(tmp_path: Path) -> None:
    assert lock_holder(2**62) is None
    with (tmp_path / ".lock").open("wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(inode) in (os.getpid(), None)
    assert lock_holder(inode) is None
