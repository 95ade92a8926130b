"""What a peer's word is worth: the syncs it really makes, and what is there after kill -9."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.peers.driver import conversation, digest
from bench.peers.talk import PIPE_SIZE, Peer, Talk, Task

WARM, COUNTED = 20, 100
MOST_STEPS = 60
"""Between two kills."""
MOST_WAIT = 0.005
"""Seconds by chance before a kill, so that it falls anywhere in a step."""
_STRACE = ("-f", "-qq", "-s", "16", "-e", "signal=none", "-e", "trace=fsync,fdatasync,write")
_SYNC = re.compile(r"\b(?:fsync|fdatasync)(?:\(\d+| resumed>)\) += 0")
_ACK = re.compile(r'\bwrite\(1, "(\d+)\\n"')


class Syncs(NamedTuple):
    each: float
    """For each step, over all threads."""
    before_next: float
    """The share of steps with a sync between the word for the one before and the word for it."""


def syncs(peer: Peer, scratch: Path, seed: int) -> Syncs | str:
    """What strace sees, or why it sees nothing."""
    strace = shutil.which("strace")
    if strace is None:
        return "needs strace"
    output = scratch / f"{peer.script}-{peer.form}.trace"
    task = Task(seed, WARM + COUNTED)
    with Talk(
        peer, output.with_suffix(".traced"), task, (strace, *_STRACE, "-o", str(output))
    ) as talk:
        try:
            talk.hear()
        except AssertionError as silent:
            return f"strace may not trace here: {str(silent)[-200:]}"
        talk.say(f"ack {WARM + COUNTED}")
        for _ in range(WARM + COUNTED):
            talk.hear()
        talk.close()
    return counted(output.read_text(encoding="utf-8", errors="replace").splitlines())


def counted(rows: list[str]) -> Syncs:
    """Syncs between the words for the steps that are counted."""
    between: list[int] = []
    since = 0
    for row in rows:
        if _SYNC.search(row):
            since += 1
        elif match := _ACK.search(row):
            if int(match[1]) > WARM:
                between.append(since)
            since = 0
    if len(between) != COUNTED:
        raise AssertionError(f"the trace shows {len(between)} steps of {COUNTED}")
    return Syncs(sum(between) / COUNTED, sum(map(bool, between)) / COUNTED)


class Kills(NamedTuple):
    kills: int
    acknowledged: int
    lost: int
    """Acknowledged steps that were gone in the next process."""
    times: int
    """Kills after which some were gone."""
    wrong: int
    """Kills after which what was there was not the beginning of the conversation."""


def kills(peer: Peer, store: Path, seed: int, count: int) -> Kills:
    """Kill it again and again while it works; each new process goes on where it finds itself."""
    rng = Random(f"{seed} {peer.name} kills")
    # It runs on while we read its words, as far as they fit into the pipe.
    task = Task(seed, count * (MOST_STEPS + PIPE_SIZE // 2))
    said = [message["content"] for message in conversation(*task)]
    acknowledged = lost = times = wrong = reached = 0
    for number in range(count + 1):
        with Talk(peer, store, task) as talk:
            told = talk.hear()
            there: int = told["count"]
            wrong += told["digest"] != digest(said[:there])
            lost += max(0, reached - there)
            times += reached > there
            if number == count or wrong:
                talk.kill()
                break
            reached = killed(talk, there, rng)
            acknowledged += reached - there
    return Kills(number, acknowledged, lost, times, wrong)


def killed(talk: Talk, there: int, rng: Random) -> int:
    """Let it go on from `there`, kill it by chance; the last step it gave its word for."""
    target = there + rng.randrange(1, MOST_STEPS)
    talk.say("ack 1000000")
    reached = there
    while reached < target:
        reached = talk.hear()
    time.sleep(rng.uniform(0, MOST_WAIT))
    return max([reached, *talk.kill()])
