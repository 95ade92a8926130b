"""The talk with the peers' drivers, on those two that need nothing installed."""

import sys
from pathlib import Path

import pytest

from bench.frame import Setup
from bench.peers import environment, trials
from bench.peers.comparison import CONTROL, OURS, PLAIN
from bench.peers.driver import conversation, digest
from bench.peers.race import race, resume, store
from bench.peers.talk import Peer, Talk, Task

SEED, STEPS = 7, 120
NEEDING_NOTHING = pytest.mark.parametrize("peer", [OURS, PLAIN], ids=lambda peer: peer.name)


def test_a_message_has_about_400_bytes_and_no_two_are_the_same() -> None:
    said = [message["content"] for message in conversation(SEED, 5_000)]
    assert len(set(said)) == 5_000
    assert all(340 < len(each) < 420 for each in said)


@NEEDING_NOTHING
def test_a_new_process_has_the_conversation_back_and_goes_on(peer: Peer, tmp_path: Path) -> None:
    said = [message["content"] for message in conversation(SEED, STEPS)]
    for before, steps in ((0, 20), (20, 30), (50, 70)):
        with Talk(peer, tmp_path / "store", Task(SEED, STEPS)) as talk:
            told = talk.hear()
            assert (told["count"], told["digest"]) == (before, digest(said[:before]))
            talk.say(f"go {steps}")
            assert talk.hear()["count"] == before + steps
            talk.close()


def test_turns_add_up_to_the_whole_conversation(tmp_path: Path) -> None:
    setup, task = Setup(tmp_path, SEED, quick=True), Task(SEED, STEPS)
    kept = race(setup, [OURS, PLAIN], task)
    resume(setup, kept, task)
    for peer, own in kept.items():
        assert [turn.count for turn in own.turns] == [50, 50, 20]
        assert own.bytes > STEPS * 340, peer.name
        assert len(own.resume) == len(own.process) == 1


def test_a_store_that_lost_a_step_does_not_count_as_resumed(tmp_path: Path) -> None:
    setup, task = Setup(tmp_path, SEED, quick=True), Task(SEED, STEPS)
    kept = race(setup, [OURS], task)
    log = store(setup, OURS) / "state/rio/journal.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(AssertionError, match=f"{STEPS - 1} of {STEPS} steps"):
        resume(setup, kept, task)


@NEEDING_NOTHING
def test_nothing_acknowledged_is_lost_when_it_is_killed(peer: Peer, tmp_path: Path) -> None:
    found = trials.kills(peer, tmp_path / "store", SEED, 2)
    assert (found.kills, found.lost, found.wrong) == (2, 0, 0)
    assert found.acknowledged >= 2


def test_one_that_acknowledges_what_it_has_not_kept_is_caught(tmp_path: Path) -> None:
    found = trials.kills(CONTROL, tmp_path / "store", SEED, 2)
    assert found.times == 2
    assert found.lost == found.acknowledged > 0


def test_a_sync_is_counted_for_the_step_whose_word_comes_after_it() -> None:
    steps = range(1, trials.WARM + trials.COUNTED + 1)
    row = '7 write(1, "{}\\n", 3) = 3'
    rows = [line for step in steps for line in ("7 fdatasync(4)   = 0", row.format(step))]
    assert trials.counted(rows) == trials.Syncs(1.0, 1.0)
    # A sync that ends in another thread, and one that failed, between the last two words.
    rows[-2:-1] = ["8 <... fsync resumed>)  = 0", "8 fsync(4) = -1 EIO (Input/output error)"]
    assert trials.counted(rows) == trials.Syncs(1.0, 1.0)
    rows[-3:-1] = []
    assert trials.counted(rows) == trials.Syncs(0.99, 0.99)


def test_a_trace_that_misses_a_step_is_refused() -> None:
    with pytest.raises(AssertionError, match="0 steps"):
        trials.counted([])


def test_what_cannot_be_installed_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    monkeypatch.setattr(environment, "VENV", venv)
    monkeypatch.setattr(environment, "_STAMP", venv / "stamp")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    reason = environment.build()
    assert reason is not None
    assert reason.startswith("the peers cannot be installed: ")
    assert not venv.exists()
