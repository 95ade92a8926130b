"""What every peer's driver shares: the messages, and the talk with the benchmark.

    python bench/peers/NAME.py STORE FORM SEED STEPS LENGTH

A driver opens STORE, has the conversation back that is in there, and says so in its first line:
how many steps, a hash over them, and how long that took after its imports.  Then it obeys lines
on standard input:

    go N       take N steps, then say how many there are now, seconds and processor seconds
    ack N      the same, and a line with the number of each step as soon as it is kept
    close      close the store as a program does that ends, and end

Only the standard library is imported here, so that each peer is measured with its own imports.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random

Message = dict[str, str]

_TEXT = (
    "I read the log of the failed job and found that the lease had run out before the result was "
    "merged so the branch must be tested again with a smaller budget while the other agents wait"
)
_WORDS = _TEXT.split()
LENGTH = 400


def conversation(seed: int, steps: int, length: int = LENGTH) -> list[Message]:
    """What is said in each step, in messages of about so many bytes; the same for every peer."""
    rng = Random(f"{seed} conversation")
    paragraphs = [_paragraph(rng, length) for _ in range(61)]
    return [
        {"role": "assistant", "content": f"Step {index}: {paragraphs[index % 61]}"}
        for index in range(steps)
    ]


def _paragraph(rng: Random, length: int) -> str:
    text = rng.choice(_WORDS)
    while len(text) < length - 50:
        text += f" {rng.choice(_WORDS)}"
    return text


def digest(contents: Sequence[str]) -> str:
    return sha256("\n".join(contents).encode()).hexdigest()


class Gate:
    """Lets a peer take its steps, and measures them."""

    def __init__(self) -> None:
        self.close: Callable[[], None] = lambda: None
        """How the peer closes its store."""
        self.count = 0
        self._acks = False
        self._left = 0
        self._began = time.perf_counter(), _cpu()

    def resumed(self, contents: Sequence[str]) -> None:
        """The peer has its state back and is about to take the next step."""
        seconds = time.perf_counter() - self._began[0]
        self.count = len(contents)
        _say({"count": self.count, "digest": digest(contents), "seconds": seconds})
        self._obey()

    def kept(self, count: int) -> None:
        """The peer would begin the next step: `count` steps are as safe as it makes them."""
        self.count = count
        self._left -= 1
        if self._acks:
            os.write(1, b"%d\n" % count)
        if self._left == 0:
            seconds, cpu = time.perf_counter() - self._began[0], _cpu() - self._began[1]
            _say({"count": count, "seconds": seconds, "cpu": cpu})
            self._obey()

    def _obey(self) -> None:
        order, _, number = sys.stdin.readline().strip().partition(" ")
        if order not in ("go", "ack"):
            self.close()
            os._exit(0)  # some peers have threads that would go on
        self._acks, self._left = order == "ack", int(number)
        self._began = time.perf_counter(), _cpu()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(what: dict[str, object]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def start(run: Callable[[Path, str, list[Message], Gate], None]) -> None:
    """Call a driver's `run` with the store, the form, the conversation and a gate."""
    _, store, form, seed, steps, length = sys.argv
    said = conversation(int(seed), int(steps), int(length))
    run(Path(store), form, said, Gate())
