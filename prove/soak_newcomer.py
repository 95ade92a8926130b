"""A writer that has no past: it appends at the pace of `soak` to a home of its own.

    python -m prove.soak_newcomer FOLDER UNTIL PAUSE ROTATE_AT

leaves when each append was acknowledged, by the monotonic clock, and how long it took.
"""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path
from random import Random

from holdfast.store.home import Home

POINT = struct.Struct("<dd")


def main(folder: str, until: str, pause: str, rotate_at: str) -> None:
    place, now, rng = Path(folder), time.monotonic, Random(until)
    place.mkdir(exist_ok=True)
    name = f"{float(until):020.6f}"
    with (
        open(place / f"{name}.points", "xb", buffering=0) as points,
        Home.open(str(place / name), create=True) as home,
    ):
        log = home.log("journal.jsonl", rotate_at=int(rotate_at))
        number = 0
        while (began := now()) < float(until):
            number += 1
            log.append({"id": f"0.0.{number}", "pad": "x" * rng.randrange(200)})
            ended = now()
            points.write(POINT.pack(ended, ended - began))
            time.sleep(float(pause) * rng.random() * 2)
        log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
