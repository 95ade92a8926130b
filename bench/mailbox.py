"""Mailboxes: taking from a full one, and what a durable delivery costs over its system calls."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from itertools import count, cycle
from pathlib import Path

from bench.frame import (
    Bar,
    Outcome,
    Setup,
    interleaved,
    ratios,
    rounded,
    seconds_of,
    significant,
)
from bench.material import CountingVfs, Record, home_in, records
from holdfast.codec import encode
from holdfast.ids import new_message_id
from holdfast.store.primitives import Claim

INBOX = "state/rio/inbox"
FULL, QUICK = 100_000, 10_000
TURN = 20


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    some = records(setup.rng("records"), 500)
    syncs(setup, outcome, some)
    full_mailbox(setup, outcome, some)
    delivering(setup, outcome, some)
    return outcome


def syncs(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    vfs = CountingVfs()
    with home_in(setup.scratch / "syncs", vfs) as home:
        mailbox = home.mailbox(INBOX)
        mailbox.deliver(some[0])
        before = vfs.syncs
        for record in some[:100]:
            mailbox.deliver(record)
        each = (vfs.syncs - before) / 100
        before = vfs.syncs
        claims = mailbox.claim("rio", fence=1, seconds=600, limit=100)
        for claim in claims:
            mailbox.ack(claim)
        claimed = vfs.syncs - before
    outcome.numbers["syncs"] = {"files_per_delivery": each, "files_per_claim_and_ack": claimed}
    outcome.bars += [
        Bar("delivery: syncs of a file", each, "==", 1),
        Bar("claim and ack: syncs of a file", claimed, "==", 0),
    ]


# --- taking from a full one -----------------------------------------------------------------


def fill(folder: Path, some: list[Record], number: int, setup: Setup) -> None:
    """Files as `deliver` leaves them; made without syncs, since they are only to be taken."""
    rng, now = setup.rng("names"), time.time()
    supply = cycle([encode(record | {"priority": "normal"}) + b"\n" for record in some])
    for n in range(number):
        name = new_message_id(now - number + n, rng.randrange(3), rng.getrandbits(62))
        fd = os.open(folder / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, next(supply))
        os.close(fd)


def full_mailbox(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    number = int(setup.pick(FULL, QUICK))
    path = setup.scratch / "full"
    firsts: list[float] = []
    nexts: list[float] = []
    with home_in(path) as home:
        home.mailbox(INBOX).redeliver()
        fill(path / INBOX, some, number, setup)
        for _ in range(setup.pairs):
            mailbox, taken = home.mailbox(INBOX), list[Claim]()

            def take(mailbox=mailbox, taken=taken) -> None:  # type: ignore[no-untyped-def]
                taken.extend(mailbox.claim("rio", fence=1, seconds=600))

            firsts.append(seconds_of(take))
            nexts.append(seconds_of(take))
            if len(taken) != 2:
                raise AssertionError(f"{len(taken)} messages taken of {number}")
    outcome.numbers["take"] = {
        "waiting": number,
        "first_s": rounded(firsts),
        "next_ms": rounded([each * 1e3 for each in nexts]),
    }
    outcome.bars.append(
        Bar(
            f"take one of {number:,} that wait, by a process that has not looked before",
            statistics.median(firsts),
            "<",
            1.0,
            "s",
            timed=True,
            alone=True,
            beside=tuple(firsts),
        )
    )


# --- delivering -----------------------------------------------------------------------------


def raw_delivery(folder: Path, some: list[Record]) -> Callable[[], int]:
    """create, write, fdatasync, close, link, fsync of the directory: no unlink, no checks."""
    folder.mkdir()
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    supply, numbers = cycle([encode(record) + b"\n" for record in some]), count()

    def turn() -> int:
        for _ in range(TURN):
            name = f"{next(numbers):032x}"
            fd = os.open(f".{name}.tmp", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=where)
            os.write(fd, next(supply))
            os.fdatasync(fd)
            os.close(fd)
            os.link(f".{name}.tmp", f"{name}.json", src_dir_fd=where, dst_dir_fd=where)
            os.fsync(where)
        return TURN

    return turn


def delivering(setup: Setup, outcome: Outcome, some: list[Record]) -> None:
    raw = raw_delivery(setup.scratch / "raw", some)
    rng, turns = setup.rng("turns"), int(setup.pick(25, 4))
    with home_in(setup.scratch / "deliver") as home:
        mailbox, supply = home.mailbox(INBOX), cycle(some)

        def ours() -> int:
            for _ in range(TURN):
                mailbox.deliver(next(supply))
            return TURN

        ours()
        raw()
        pairs = [interleaved(ours, raw, turns, rng) for _ in range(setup.pairs)]
    rates, raw_rates = [mine.rate for mine, _ in pairs], [theirs.rate for _, theirs in pairs]
    share = ratios(rates, raw_rates)
    outcome.numbers["deliver"] = {
        "messages": sum(mine.count for mine, _ in pairs),
        "cpu_us": rounded([mine.cpu_each for mine, _ in pairs]),
        "raw_cpu_us": rounded([theirs.cpu_each for _, theirs in pairs]),
        "ratio_to_raw": rounded(share),
        "rate": rounded(rates),
        "raw_rate": rounded(raw_rates),
        "median_ratio": significant(statistics.median(share)),
    }
    outcome.bars.append(
        Bar(
            "deliver: rate, as a share of a loop of create, write, fdatasync, link, fsync",
            statistics.median(share),
            ">=",
            0.7,
            "× raw",
            timed=True,
            beside=tuple(raw_rates),
        )
    )
