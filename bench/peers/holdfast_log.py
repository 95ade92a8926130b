"""Holdfast: one append to a log for each step."""

from pathlib import Path

from driver import Gate, Message, start

from holdfast.store.home import Home
from holdfast.store.primitives import Line


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    home = Home.open(str(store), create=True, timezone="UTC")
    log = home.log("state/rio/journal.jsonl")
    # What a killed writer left unfinished stays in the log and is no record.
    contents = [line.record["content"] for line in log.read() if isinstance(line, Line)]

    def close() -> None:
        log.close()
        home.close()

    gate.close = close
    gate.resumed(contents)
    for index in range(gate.count, len(said)):
        log.append(said[index])
        gate.kept(index + 1)


if __name__ == "__main__":
    start(run)
