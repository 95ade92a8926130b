"""SQLite without anything around it: one row for each step, WAL, synchronous=FULL.

The form `lazy` is the control of the kills: it acknowledges each step and commits none, so it
has to be caught.
"""

import json
import sqlite3
from pathlib import Path

from driver import Gate, Message, start


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    store.mkdir(exist_ok=True)
    connection = sqlite3.connect(store / "steps.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS steps (id INTEGER PRIMARY KEY, message TEXT)")
    rows = connection.execute("SELECT message FROM steps ORDER BY id")
    contents = [json.loads(message)["content"] for (message,) in rows]
    gate.close = connection.close
    gate.resumed(contents)
    for index in range(gate.count, len(said)):
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO steps (message) VALUES (?)", (json.dumps(said[index]),))
        if form != "lazy":
            connection.execute("COMMIT")
        gate.kept(index + 1)


if __name__ == "__main__":
    start(run)
