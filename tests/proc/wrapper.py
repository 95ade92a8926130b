"""A wrapper to be killed: runs one tree, and tells its mark and whatever the command prints."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import nullcontext

from holdfast.errors import Busy
from holdfast.proc.around import Around
from holdfast.proc.limits import Limits
from holdfast.proc.survivors import find_survivors
from holdfast.proc.tree import Tree


def main() -> None:
    given = json.loads(sys.argv[1])

    def on_start(child: object) -> None:
        if given["forks"] and os.fork() == 0:
            os.write(1, b"forked\n")
            os.close(1)
            while find_survivors(tree.mark):
                time.sleep(0.01)
            os._exit(0)

    with Around(given["around"]) if given["around"] else nullcontext():
        tree = Tree(
            given["command"],
            env={**os.environ, "WORD": given["word"]},
            means=[given["means"]],
            limits=Limits(grace=0.1),
            on_start=on_start,
            on_output=lambda stream, data: os.write(1, data) and None,
            orphaned=["sh", "-c", f"echo nothing is left > {given['fifo']}"],
        )
    os.write(1, json.dumps(tree.mark.as_dict()).encode() + b"\n")
    try:
        with tree:
            ended = tree.wait()
            if given["dies"]:
                os.kill(os.getpid(), signal.SIGKILL)
    except Busy:
        os.write(1, b"ended busy\n")
    else:
        os.write(1, f"ended {ended.outcome} {ended.left}\n".encode())


if __name__ == "__main__":
    main()
