"""DBOS on SQLite: a workflow with one step for each message.

DBOS recovers by running the workflow again with what its steps returned before; the state is
back when it comes to the first step that has to be run.  Form `default` is the database as DBOS
makes it, form `wal` one that was set to WAL before (SQLite keeps that setting in the file).
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event

from dbos import DBOS, DBOSConfig, SetWorkflowID
from driver import Gate, Message, start

_ID = "conversation"


def run(store: Path, form: str, said: list[Message], gate: Gate) -> None:
    store.mkdir(exist_ok=True)
    file = store / "dbos.sqlite"
    if form == "wal":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    config: DBOSConfig = {
        "name": "rio",
        "system_database_url": f"sqlite:///{file}",
        "application_version": "1",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    contents: list[str] = []
    told = Event()

    def tell() -> None:
        if not told.is_set():
            told.set()
            gate.resumed(contents)

    @DBOS.step()
    def say(index: int) -> Message:
        tell()
        return said[index]

    @DBOS.workflow()
    def converse() -> None:
        for index in range(len(said)):
            contents.append(say(index)["content"])
            if told.is_set():
                gate.kept(index + 1)
        # Never ends by itself, so that there is something to recover.
        tell()

    gate.close = DBOS.destroy
    DBOS.launch()
    if DBOS.get_workflow_status(_ID) is None:
        with SetWorkflowID(_ID):
            DBOS.start_workflow(converse)
    Event().wait()


if __name__ == "__main__":
    start(run)
