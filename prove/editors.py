"""editors: people and scripts save what they loaded a while ago, while Holdfast goes on writing.

Two documents, a text and a JSON list of tasks, are changed by processes that are killed now
and then, each change acknowledged.  An editor loads a document, waits until somebody has
changed it behind its back, puts in a mark of its own, and saves its stale buffer: by a rename,
or into the file in place, now and then with a pause while the file is empty.  In the end every
acknowledged change and every mark has to be there, the JSON has to be JSON, and the log has to
verify.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

from holdfast.codec import decode, pretty
from holdfast.errors import Busy
from holdfast.store.edited import EditedDocument, Merge
from holdfast.store.home import Home
from holdfast.store.merge import merge_json, merge_lines
from prove import frame
from prove.frame import Control, Harness, Result

HARNESS = Harness(
    name="editors",
    proves="A stale buffer that is saved loses nothing that was acknowledged.",
    targets={"quick": 16, "ci": 120, "full": 1_000},
    unit="stale saves",
)
_NOTES, _TASKS, _JOURNAL = "state/rio/memory.md", "state/rio/tasks.json", "state/rio/journal.jsonl"
_HEAD = "# Notes\n\n"
_WRITERS, _KILL_EVERY = 2, 7
_PATIENCE = 60.0
_SLOW_ONE_OF, _STALL = 8, (0.3, 0.6)
"""One of so many saves in place stalls for so long: longer than a whole text has to rest."""


def _is_json(text: str) -> None:
    decode(text.encode())


def _theirs(base: str, ours: str, theirs: str) -> str:
    """The merge of a broken system: who saves last is right."""
    return theirs


def document(home: Home, key: str, *, broken: bool = False) -> EditedDocument:
    merge: Merge = merge_json if key == _TASKS else merge_lines
    return EditedDocument(
        home.sheet(key),
        home.log(_JOURNAL),
        home.cell(f"{key}.history"),
        home.clock,
        merge=_theirs if broken else merge,
        check=_is_json if key == _TASKS else lambda _: None,
    )


def added(key: str, word: str) -> Callable[[str], str]:
    """A change that adds one entry at the end."""

    def change(text: str) -> str:
        if key == _NOTES:
            return f"{text or _HEAD}- {word}\n"
        tasks: Any = json.loads(text or '{"tasks":[]}')
        tasks["tasks"].append({"id": word, "status": "pending"})
        return pretty(tasks).decode()

    return change


def marked(key: str, data: bytes, word: str) -> bytes:
    """What an editor makes of a document: its own entry, near the top."""
    if key == _NOTES:
        head, _, rest = data.partition(b"\n\n")
        return b"%b\n\n- %b\n%b" % (head, word.encode(), rest)
    tasks: Any = json.loads(data)
    tasks["tasks"].insert(0, {"id": word, "status": "pending"})
    return json.dumps(tasks, indent=1).encode()


def entries(key: str, text: str) -> set[str]:
    if key == _NOTES:
        return {line[2:] for line in text.split("\n") if line.startswith("- ")}
    return {task["id"] for task in json.loads(text)["tasks"]}


def _write(path: str, me: str, broken: bool, acks: int) -> None:
    """Add entries for ever, and say of each that it was acknowledged."""
    with Home.open(path) as home:
        both = {key: document(home, key, broken=broken) for key in (_NOTES, _TASKS)}
        number = 0
        while True:
            for key, one in both.items():
                number += 1
                word = f"{me}.{number}"
                try:
                    one.update(added(key, word), {"event": "note", "word": word})
                except Busy:
                    continue  # the machine is slow, and nothing was promised
                os.write(acks, f"{key} {word}\n".encode())


class Desk:
    """Writers that are killed and started again, and what they have acknowledged."""

    def __init__(self, path: Path, *, broken: bool) -> None:
        self.path, self._broken = path, broken
        # Forked, as every victim is: a new interpreter for each death would take the whole time.
        self._fork = multiprocessing.get_context("fork")
        self._read, self._acks = os.pipe()
        os.set_blocking(self._read, False)
        self._lives = 0
        self._heard = b""
        self._writers: list[BaseProcess] = []
        with Home.open(str(path), create=True, timezone="UTC") as home:
            for key in (_NOTES, _TASKS):
                document(home, key).update(added(key, "first"), {"event": "note"})
        for _ in range(_WRITERS):
            self._start()

    def _start(self) -> None:
        self._lives += 1
        arguments = (str(self.path), f"w{self._lives}", self._broken, self._acks)
        writer = self._fork.Process(target=_write, args=arguments, daemon=True)
        writer.start()
        self._writers.append(writer)

    def replace_one(self, rng: Random) -> bool:
        """Kill a writer and start another; whether it was that which ended it."""
        writer = self._writers.pop(rng.randrange(len(self._writers)))
        killed = self._end(writer)
        self._start()
        return killed

    def _end(self, writer: BaseProcess) -> bool:
        writer.kill()
        writer.join()
        return writer.exitcode == -signal.SIGKILL

    def acknowledged(self) -> list[tuple[str, str]]:
        """Every entry that a writer has been told is safe; ends the writers."""
        for writer in self._writers:
            self._end(writer)
        os.close(self._acks)
        self._drain()
        os.close(self._read)
        rows = self._heard.decode().split("\n")[:-1]
        return [(key, word) for key, word in (row.split(" ") for row in rows)]

    def _drain(self) -> None:
        try:
            while data := os.read(self._read, 1 << 16):
                self._heard += data
        except BlockingIOError:
            pass

    def watch(self) -> None:
        """Keep the pipe from filling up, and notice a writer that failed."""
        self._drain()
        failed = [writer for writer in self._writers if writer.exitcode is not None]
        if failed:
            raise AssertionError(f"a writer ended by itself: {failed[0].exitcode}")


class Editor:
    """Loads, waits until it is stale, marks and saves."""

    def __init__(self, desk: Desk, rng: Random) -> None:
        self._desk, self._rng = desk, rng
        self.marks: list[tuple[str, str]] = []
        self.styles: Counter[str] = Counter()

    def save(self, number: int) -> bool:
        """Save one stale buffer; whether it was one."""
        key = self._rng.choice((_NOTES, _TASKS))
        file = self._desk.path / key
        buffer, deadline = self._load(file, key), time.monotonic() + _PATIENCE
        while file.read_bytes() == buffer:
            self._desk.watch()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        time.sleep(self._rng.random() * 0.03)
        mark = f"edit-{number}"
        style = self._rng.choice(("rename", "in place"))
        is_slow = style == "in place" and self._rng.randrange(_SLOW_ONE_OF) == 0
        data = marked(key, buffer, mark)
        if style == "rename":
            copy = file.with_suffix(".swp")
            copy.write_bytes(data)
            os.rename(copy, file)
        else:
            with open(file, "r+b") as opened:
                opened.truncate()
                if is_slow:
                    style = "in place, slowly"
                    time.sleep(self._rng.uniform(*_STALL))
                opened.write(data)
        self.marks.append((key, mark))
        self.styles[style] += 1
        return True

    def _load(self, file: Path, key: str) -> bytes:
        """The document, once it shows all of our own marks: we would not edit a text that lacks
        what we have just saved."""
        mine = {mark for where, mark in self.marks if where == key}
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._desk.watch()
            data = file.read_bytes()
            try:
                if mine <= entries(key, data.decode()):
                    return data
            except ValueError:
                pass  # caught in the middle of a save of our own
            if time.monotonic() > deadline:
                lacks = sorted(mine - entries(key, data.decode()))
                raise AssertionError(f"{key} lacks {lacks[:3]} for {_PATIENCE:.0f} s")
            time.sleep(0.002)


def _play(place: Path, saves: int, rng: Random, *, broken: bool = False) -> Result:
    result = Result(HARNESS.name, "")
    desk = Desk(place / "home", broken=broken)
    editor, kills = Editor(desk, rng), 0
    try:
        for number in range(saves):
            result.fired += editor.save(number)
            if number % _KILL_EVERY == _KILL_EVERY - 1:
                kills += desk.replace_one(rng)
    finally:
        acked = desk.acknowledged()
    result.tried = saves
    with Home.open(str(desk.path)) as home:
        texts = {key: document(home, key).read() or "" for key in (_NOTES, _TASKS)}
        verified = home.log(_JOURNAL).verify()
    there = {key: entries(key, text) for key, text in texts.items()}
    gone = [f"{word} of {key}" for key, word in acked if word not in there[key]]
    result.lost = len(gone)
    unmarked = [f"{mark} of {key}" for key, mark in editor.marks if mark not in there[key]]
    for word in gone[:5]:
        result.failures.append(frame.Failure("-", f"P1: {word} was acknowledged and is gone"))
    for word in unmarked:
        result.add_failure("-", f"P1: {word} was saved by hand and is gone")
    if verified.problems:
        result.add_failure("-", f"P6: the log does not verify: {verified.problems[0]}")
    result.survived = result.tried - result.failed
    result.details |= {"acks": len(acked), "kills": kills, "styles": dict(editor.styles)}
    return result


def run(tier: str, seed: int, case: str | None = None) -> Result:
    with frame.scratch("editors") as place:
        result = _play(place, HARNESS.targets[tier], Random(f"editors|{seed}"))
    result.tier = tier
    return result


def control(seed: int) -> list[Control]:
    """The same with a merge that lets the last one win: it has to lose something."""
    with frame.scratch("editors-control") as place:
        try:
            found = _play(place, 4, Random(f"editors|control|{seed}"), broken=True)
            detail = found.failures[0].says if found.failures else "nothing was lost"
            caught = found.lost > 0 or found.failed > 0
        except AssertionError as error:
            detail, caught = str(error), True
    return [Control("last one wins", caught, detail)]
