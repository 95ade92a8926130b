"""What victims do to a mailbox: the roles that `inbox` forks.

`deliverer` delivers as fast as it can and reports what was acknowledged; `claimer` claims, works
a little, and acknowledges, renews or gives back.  All times are boot time, the clock that
deadlines are in.
"""

from __future__ import annotations

import json
import os
import socket
import time
from random import Random
from typing import Any

from holdfast.errors import LeaseLost
from holdfast.process import this_process
from holdfast.store import failpoints, mailbox
from holdfast.store.home import Home
from holdfast.store.primitives import Claim
from holdfast.store.shelves import CLAIMED
from holdfast.store.vfs import RealDir

INBOX = "state/all/inbox"
TRIES = 99
"""Victims are killed so often that no message may die of it."""
SECONDS = 0.25
"""How long a claim holds."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def deliverer(
    channel: socket.socket, *, home: str, life: int, seed: int, arm: str = "", broken: str = ""
) -> None:
    rng = Random(seed)
    failpoints.arm_from(arm)
    with Home.open(home) as opened:
        box = opened.mailbox(INBOX, tries=TRIES)
        number = 0
        while True:
            number += 1
            record: dict[str, Any] = {"n": f"{life}.{number}"}
            if rng.random() < 0.2:
                record["pad"] = "ü€" * rng.randrange(800)
            name = f"m{life}.{number}" if rng.random() < 0.5 else None
            priority = rng.choice(("high", "normal", "normal", "low"))
            if broken == "ackfirst":
                name = f"m{life}.{number}"
                _tell(channel, "D", name, number)
            id = box.deliver(record, id=name, priority=priority)
            if broken != "ackfirst":
                _tell(channel, "D", id, number)


def claimer(
    channel: socket.socket, *, home: str, life: int, seed: int, arm: str = "", broken: str = ""
) -> None:
    rng = Random(seed)
    sabotage(broken)
    failpoints.arm_from(arm)
    with Home.open(home) as opened:
        box = opened.mailbox(INBOX, tries=TRIES)
        while True:
            owner = this_process() if rng.random() < 0.7 else None
            began = now()
            claims = box.claim(
                f"c{life}",
                fence=life,
                seconds=SECONDS,
                owner=owner,
                limit=rng.choice((1, 1, 2, 5)),
            )
            ended = now()
            for claim in claims:
                _tell(channel, "C", claim.id, claim.attempt, began, ended, claim.deadline)
            for claim in claims:
                _settle(channel, box, claim, rng)
            if not claims:
                time.sleep(0.02)


def _settle(channel: socket.socket, box: mailbox.FileMailbox, claim: Claim, rng: Random) -> None:
    roll = rng.random()
    if roll < 0.02:
        time.sleep(SECONDS * rng.choice((0.3, 1.1)))
    try:
        if roll < 0.06:
            claim = box.renew(claim, SECONDS)
            _tell(channel, "R", claim.id, claim.attempt, claim.deadline)
        began = now()
        if 0.06 < roll < 0.1:
            # Who dies on it can be heard no more: what he was about to do has to be known.
            _tell(channel, "G", claim.id, claim.attempt)
            box.give_back(claim, "for a change")
            _tell(channel, "B", claim.id, claim.attempt)
        else:
            box.ack(claim)
            _tell(channel, "A", claim.id, claim.attempt, began, now())
    except LeaseLost:
        _tell(channel, "L", claim.id, claim.attempt)


def _tell(channel: socket.socket, *words: Any) -> None:
    channel.send(json.dumps(words).encode())


# --- for the controls -----------------------------------------------------------------------


def sabotage(how: str) -> None:
    """Break the protocol in this process."""
    if how == "copy":
        # The claim leaves the message where it is: link without unlink.
        real = RealDir.move

        def move(self: RealDir, old: str, other: RealDir, new: str) -> None:
            if other.path.endswith(CLAIMED) and not self.path.endswith(CLAIMED):
                os.link(f"{self.path}/{old}", f"{other.path}/{new}")
            else:
                real(self, old, other, new)

        RealDir.move = move  # type: ignore[method-assign]
    if how == "anyname":
        # The acknowledgement takes whatever claim there is of the id, by copy and delete.
        def ack(self: mailbox.FileMailbox, claim: Claim) -> None:
            with self._opened("acknowledging") as box:  # type: ignore[attr-defined]
                for name in box.claimed.names():
                    if name.startswith(f"{claim.id}.json~"):
                        try:
                            box.claimed.move(name, box.done, f"{claim.id}.json")
                        except OSError:
                            pass

        mailbox.FileMailbox.ack = ack  # type: ignore[assignment,method-assign]
