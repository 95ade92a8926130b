"""Two machines on one disk: neither takes what the other one has."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Busy, LeaseLost
from holdfast.process import this_process
from holdfast.state.statelog import StateLog
from holdfast.store.fence import LEASES, DetachedLease
from holdfast.store.home import Home
from holdfast.store.primitives import Claim
from holdfast.testing import refused
from tests.machines import machine, needs_machines
from tests.store.boxes import KEY
from tests.store.children import SECONDS, child

pytestmark = needs_machines

SCRIPT = """
from holdfast.process import this_process
from holdfast.state.statelog import StateLog
from holdfast.store.fence import LEASES, DetachedLease
home = Home.open({path!r})
mailbox, log = home.mailbox({key!r}), StateLog(home, "state/a.jsonl", LEASES)
lease = DetachedLease(log, home, "session", fences=lambda fences: fences)
def claim(owner=None, seconds=3600):
    return [each.attempt for each in mailbox.claim("far", fence=1, seconds=seconds, owner=owner)]
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "home")
    Home.open(where, create=True, timezone="UTC").close()
    return where


def script(path: str, text: str) -> str:
    return SCRIPT.format(path=path, key=KEY) + text


def taken(home: Home) -> list[Claim]:
    return home.mailbox(KEY).claim("near", fence=1, seconds=3600.0)


@pytest.mark.parametrize("owner", ["None", "this_process()"])
def test_a_claim_of_another_machine_ends_only_with_a_restart_of_that_machine(
    path: str, tmp_path: Path, owner: str
) -> None:
    claiming = script(path, f"say(claim({owner}))\nlisten()")
    with Home.open(path) as home:
        home.mailbox(KEY).deliver({"n": 1})
        with child(claiming, within=machine(tmp_path)) as far:
            assert far.hear() == "[1]"
            assert taken(home) == []
            far.end()
            assert taken(home) == [], "nobody here can know that it is dead"
        with child(claiming, within=machine(tmp_path, "third")) as third:
            assert third.hear() == "[]"
        with child(claiming, within=machine(tmp_path, boot=2)) as again:
            assert again.hear() == "[2]"


def test_a_container_of_the_same_machine_has_its_claim_until_the_deadline(path: str) -> None:
    container = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    named = [*container, "sh", "-c", 'hostname box && exec "$@"', "sh"]
    with Home.open(path) as home:
        home.mailbox(KEY).deliver({"n": 1})
        with child(script(path, "say(claim(this_process()))\nlisten()"), within=named) as box:
            assert box.hear() == "[1]"
            box.end()
        assert taken(home) == []
        (held,) = home.mailbox(KEY).claimed()
        assert 3590 < held.left <= 3600


def test_a_session_of_another_machine_is_left_to_it(path: str, tmp_path: Path) -> None:
    text = (
        "say(lease.take('far', seconds=3600, owner=this_process()))\n"
        "listen()\nlease.append(1, {'n': 1})"
    )
    with Home.open(path) as home, child(script(path, text), within=machine(tmp_path)) as far:
        assert far.hear() == "1"
        with StateLog(home, "state/a.jsonl", LEASES) as log:
            lease = DetachedLease(log, home, "session", fences=lambda fences: fences)
            assert lease.is_live()
            with refused(Busy, "far"):
                lease.take("near", seconds=60, owner=this_process())
            far.tell("go on")
            assert far.wait() == 0
            restarted = script(path, "say(lease.is_live(), lease.take('again', seconds=3600))")
            with child(restarted, within=machine(tmp_path, boot=2)) as again:
                assert again.hear() == "False 2"
            with refused(LeaseLost, "again"):
                lease.append(1, {"n": 2})


def test_the_lock_of_a_lease_tells_every_machine_whether_its_owner_lives(
    path: str, tmp_path: Path
) -> None:
    text = "say(home.lease('jobs/a').acquire('far'))\nlisten()"
    with Home.open(path) as home, child(script(path, text), within=machine(tmp_path)) as far:
        assert far.hear() == "1"
        lease = home.lease("jobs/a")
        held = lease.holder()
        assert held is not None
        assert (held.purpose, held.alive, home.alive(held.owner)) == ("far", True, None)
        with refused(Busy, "far"):
            lease.acquire("near")
        far.end()
        assert lease.acquire("near", patience=SECONDS) == 2
        lease.release()
