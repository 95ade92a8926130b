"""Tasks: ids that are unique, steps that are allowed, failures that park, edits that are kept."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.agents.agent import Agent, End, Start
from holdfast.agents.tasks import (
    STEPS,
    New,
    TaskList,
    Verb,
    allowed,
    board,
    is_untouched,
    merged,
    moved,
)
from holdfast.codec import encode, pretty
from holdfast.contracts.kinds import kind
from holdfast.errors import ConfigError, Corrupt, NotFound, UsageError
from holdfast.process import this_process
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.desk.saved import saved_long_ago
from tests.ledger.shell import Shell


@pytest.fixture
def rio(home: Home) -> Iterator[Agent]:
    with Agent(home, "rio") as agent:
        yield agent


@pytest.fixture
def tasks(home: Home, rio: Agent) -> Iterator[TaskList]:
    made = listed(home, rio)
    yield made
    made.close()


def listed(home: Home, agent: Agent) -> TaskList:
    return TaskList(home, agent.name, agent.key("tasks"), agent.journal)


def file_of(path: str) -> Path:
    return Path(path, "state/rio/tasks.json")


def statuses(tasks: TaskList) -> dict[str, str]:
    return {task["id"]: task["status"] for task in tasks.read()}


def fail(agent: Agent, task: str, why: str = "it broke") -> None:
    opened = agent.start(Start("research", fields={"task": task}))
    end = End("error", "exit", {"kind": "exit", "message": why}, {"summary": why})
    agent.end("", opened.fence, end)


# --- the file -------------------------------------------------------------------------------


def test_a_task_from_beginning_to_end(tasks: TaskList, path: str, clock: Turner) -> None:
    id = tasks.add(New("Who sets the fees?", "research", "high", "seen in a thread")).task["id"]
    tasks.move(id, "start")
    clock.advance(60)
    tasks.move(id, "done", "by vote")
    found = json.loads(file_of(path).read_bytes())
    reading = kind("tasks").read(found)
    assert [each for each in reading.findings if each.level == "error"] == []
    (task,) = found["tasks"]
    assert (task["id"], task["status"], task["outcome"]) == ("task-001", "completed", "by vote")
    assert task["completed_at"] > task["created_at"]


def test_a_follow_up_is_made_with_the_end_of_its_task(tasks: TaskList) -> None:
    tasks.add(New("Who sets the fees?", priority="high"))
    changed = tasks.move("task-001", "done", "by vote", "Whose vote?")
    assert changed.follow_up is not None
    (_, second) = tasks.read()
    assert second == changed.follow_up
    assert (second["follow_up_from"], second["type"]) == ("task-001", "follow-up")
    assert second["priority"] == "high"


def test_saying_it_again_changes_nothing(tasks: TaskList, path: str) -> None:
    tasks.add(New("x"))
    tasks.move("task-001", "done", "once")
    before = file_of(path).read_bytes()
    assert not tasks.move("task-001", "done", "twice", "and more").applied
    assert file_of(path).read_bytes() == before


def test_a_step_that_is_not_allowed_is_refused_with_those_that_are(tasks: TaskList) -> None:
    tasks.add(New("x"))
    tasks.move("task-001", "done")
    with pytest.raises(UsageError) as refused:
        tasks.move("task-001", "start")
    assert "completed" in refused.value.message
    assert refused.value.hint == "allowed: reopen"
    with pytest.raises(NotFound):
        tasks.move("task-002", "start")


def test_an_id_is_not_given_again_when_its_task_was_taken_out(tasks: TaskList, path: str) -> None:
    for text in "ab":
        tasks.add(New(text))
    document = json.loads(file_of(path).read_bytes())
    file_of(path).write_bytes(pretty({**document, "tasks": []}))
    # Insisted on, so that it is no old copy.
    assert tasks.add(New("c")).task["id"] == "task-003"


def test_a_hundred_adds_at_once_get_a_hundred_ids(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "--timezone", "UTC")
    code = (
        "import sys\n"
        "from holdfast.agents.agent import Agent\n"
        "from holdfast.agents.tasks import New, TaskList\n"
        "from holdfast.store.home import Home\n"
        "with Home.open(sys.argv[1]) as home, Agent(home, 'rio') as rio:\n"
        "    tasks = TaskList(home, 'rio', rio.key('tasks'), rio.journal)\n"
        "    for number in range(10):\n"
        "        tasks.add(New(f'{sys.argv[2]}.{number}'))\n"
        "    tasks.close()\n"
    )
    command = [sys.executable, "-c", code, str(shell.home)]
    running = [subprocess.Popen([*command, str(n)], env=shell.environment()) for n in range(10)]
    assert [each.wait(60) for each in running] == [0] * 10
    found = json.loads((shell.home / "state/rio/tasks.json").read_bytes())["tasks"]
    assert {task["id"] for task in found} == {f"task-{n:03d}" for n in range(1, 101)}
    texts = {f"{process}.{number}" for process in range(10) for number in range(10)}
    assert {task["description"] for task in found} == texts


# --- edited by hand -------------------------------------------------------------------------


def test_an_old_copy_that_an_editor_saves_loses_nothing(
    tasks: TaskList, path: str, clock: Turner
) -> None:
    tasks.add(New("first"))
    old = json.loads(file_of(path).read_bytes())
    tasks.add(New("second"))
    tasks.move("task-001", "start")
    old["tasks"][0]["priority"] = "high"
    file_of(path).write_bytes(pretty(old))
    clock.advance(1)
    first, second = tasks.read()
    assert (first["priority"], first["status"]) == ("high", "active")
    assert second["description"] == "second"


def test_the_edit_is_on_record(rio: Agent, tasks: TaskList, path: str) -> None:
    tasks.add(New("first"))
    document = json.loads(file_of(path).read_bytes())
    document["tasks"][0]["note"] = "mine"
    file_of(path).write_bytes(pretty(document))
    assert tasks.read()[0]["note"] == "mine"
    assert [line.record["event"] for line in rio.lines()] == ["task_added", "edited_by_hand"]


def test_a_file_that_was_there_before_is_taken_as_it_is(tasks: TaskList, path: str) -> None:
    theirs = {"agent": "rio", "team": 7, "tasks": [{"id": "T-1", "description": "x"}]}
    text = json.dumps(theirs, indent=7).encode()
    file_of(path).parent.mkdir(parents=True)
    file_of(path).write_bytes(text)
    assert [task["id"] for task in tasks.read()] == ["T-1"]
    assert file_of(path).read_bytes() == text
    tasks.add(New("y"))
    found = json.loads(file_of(path).read_bytes())
    assert (found["team"], [task["id"] for task in found["tasks"]]) == (7, ["T-1", "task-001"])


@pytest.mark.parametrize("text", ["{", "[]", '{"tasks": {}}', '{"tasks": [1]}', "\x00"])
def test_a_file_that_cannot_be_read_is_not_overwritten(
    tasks: TaskList, path: str, text: str
) -> None:
    tasks.add(New("x"))
    file_of(path).write_text(text, encoding="utf-8")
    with pytest.raises(Corrupt):
        tasks.add(New("y"))
    assert file_of(path).read_text("utf-8") == text


def test_a_task_that_somebody_wrote_without_an_id_gets_one() -> None:
    ours = pretty({"tasks": [{"id": "task-004", "description": "a"}]}).decode()
    theirs = encode({"tasks": [{"id": "task-004", "description": "a"}, {"description": "b"}]})
    found = json.loads(merged(ours, ours, theirs.decode()))["tasks"]
    assert [task["id"] for task in found] == ["task-004", "task-005"]


@pytest.mark.parametrize("meanwhile", ["nothing", "started", "long ago"])
@pytest.mark.parametrize("mine", [{"status": "pending"}, {}, {"id": "task-001"}])
def test_a_buffer_without_the_id_that_its_task_was_given_doubles_nothing(
    tasks: TaskList, path: str, clock: Turner, mine: dict[str, Any], meanwhile: str
) -> None:
    tasks.add(New("first"))
    buffer = json.loads(file_of(path).read_bytes())
    buffer["tasks"].append({"description": "Call the bank", **mine})
    for number in range(4):
        buffer["tasks"][0]["note"] = number
        file_of(path).write_bytes(pretty(buffer))
        clock.advance(3600 if meanwhile == "long ago" else 1)
        first, second = tasks.read()
        assert (first["id"], first["note"]) == ("task-001", number)
        assert (second["id"], second["description"]) == ("task-002", "Call the bank")
        if meanwhile == "started":
            tasks.move("task-002", "start")
            assert tasks.find("task-002")["status"] == "active"
    buffer["tasks"][1]["description"] = "Call the other bank"
    file_of(path).write_bytes(pretty(buffer))
    said = [task["description"] for task in tasks.read()]
    assert said.count("Call the other bank") == 1
    assert said.count("Call the bank") == (meanwhile == "started")


def test_two_tasks_that_say_the_same_are_two(tasks: TaskList, path: str) -> None:
    tasks.add(New("first"))
    buffer = json.loads(file_of(path).read_bytes())
    buffer["tasks"] += [{"description": "Call the bank"}] * 2
    for _ in range(2):
        file_of(path).write_bytes(pretty({**buffer}))
        assert list(statuses(tasks)) == ["task-001", "task-002", "task-003"]
    document = json.loads(file_of(path).read_bytes())
    document["tasks"].append({"description": "Call the bank"})
    file_of(path).write_bytes(pretty(document))
    assert list(statuses(tasks))[3:] == ["task-004"]


@pytest.mark.parametrize(
    ("status", "meant"),
    [(None, "pending"), ("waiting", "pending"), (7, "pending"), ("Done", "completed")],
)
def test_a_status_that_is_none_of_ours_hides_no_task(
    tasks: TaskList, path: str, status: Any, meant: str
) -> None:
    task = {"id": "bank", "description": "x"} | ({} if status is None else {"status": status})
    file_of(path).parent.mkdir(parents=True)
    file_of(path).write_bytes(pretty({"tasks": [task]}))
    assert statuses(tasks) == {"bank": meant}
    assert tasks.look() == tasks.read()
    assert tasks.move("bank", "reopen" if meant == "completed" else "start").applied


def test_a_number_that_a_person_gave_or_took_away_is_not_given_again(
    rio: Agent, tasks: TaskList, path: str, clock: Turner
) -> None:
    tasks.add(New("a"))
    document = json.loads(file_of(path).read_bytes())
    for tasks_now in ([], [{"description": "b"}], [], [{"description": "c"}]):
        clock.advance(3600)
        file_of(path).write_bytes(pretty({**document, "tasks": tasks_now}))
        found = [(task["id"], task["description"]) for task in tasks.read()]
        if tasks_now:
            number = 2 if tasks_now[0]["description"] == "b" else 3
            assert found == [(f"task-{number:03d}", tasks_now[0]["description"])]
            fail(rio, found[0][0])
    assert {id: times for id, (times, _) in tasks.failures().items()} == {
        "task-002": 1,
        "task-003": 1,
    }


def test_numbers_go_on_behind_large_ones(tasks: TaskList, path: str) -> None:
    tasks.add(New("a"))
    document = json.loads(file_of(path).read_bytes())
    document["tasks"][0]["id"] = "task-999999999"
    file_of(path).write_bytes(pretty(document))
    ids = [tasks.add(New(text)).task["id"] for text in "bcd"]
    assert ids == ["task-1000000000", "task-1000000001", "task-1000000002"]


IDS = st.sampled_from([None, "task-001", "task-002", "task-003", "x", 7])
NAMELESS = [{"id": None, "description": "a"}] * 2
LISTS = st.lists(
    st.fixed_dictionaries({"id": IDS, "description": st.sampled_from("abc")}), max_size=4
)


@example([{"id": "task-001", "description": "a"}] * 2, NAMELESS, NAMELESS)
@given(LISTS, LISTS, LISTS)
def test_no_merge_loses_a_task_that_only_one_side_added(base: Any, ours: Any, theirs: Any) -> None:
    texts = [pretty({"tasks": each}).decode() for each in (base, ours, theirs)]
    first = merged(texts[0], texts[0], texts[1])  # ours has ids by then
    found = json.loads(merged(texts[0], first, texts[2]))["tasks"]
    ids = [task["id"] for task in found]
    assert len(set(ids)) == len(ids)
    before = {task["id"] for task in base}
    added = {task["id"] for task in json.loads(first)["tasks"]} - before
    # Of two with one id the second counts as one without, as ours does that was made of it.
    if all(isinstance(id, str) for id in before) and len(before) == len(base):
        assert added <= set(ids)


# --- failures -------------------------------------------------------------------------------


def test_what_fails_too_often_is_parked_until_it_is_reopened(rio: Agent, tasks: TaskList) -> None:
    tasks.add(New("x"))
    for _ in range(2):
        fail(rio, "task-001")
    assert "parked" not in tasks.read()[0]
    fail(rio, "task-001", "no such file")
    (task,) = tasks.read()
    assert task["status"] == "pending"
    assert task["parked"]["attempts"] == 3
    assert "no such file" in task["parked"]["reason"]
    with pytest.raises(UsageError) as refused:
        tasks.move("task-001", "start")
    assert "reopen" in str(refused.value.hint)
    tasks.move("task-001", "reopen")
    assert tasks.park() == []
    assert "parked" not in tasks.read()[0]
    fail(rio, "task-001")
    assert tasks.park() == []


def test_a_session_that_completes_begins_the_count_anew(rio: Agent, tasks: TaskList) -> None:
    tasks.add(New("x"))
    for _ in range(2):
        fail(rio, "task-001")
    opened = rio.start(Start("research", fields={"task": "task-001"}))
    rio.end("", opened.fence, End("completed"))
    for _ in range(2):
        fail(rio, "task-001")
    assert tasks.park() == []


def test_a_crash_counts_as_a_failure(home: Home, rio: Agent, tasks: TaskList, path: str) -> None:
    Path(path, "holdfast.toml").write_text(
        'format = 1\ntimezone = "UTC"\n[tasks]\npark_after = 1\n', encoding="utf-8"
    )
    tasks.add(New("x"))
    gone = this_process()._replace(started=1)
    rio.start(Start("research", fields={"task": "task-001"}), owner=gone)
    rio.bury()
    assert "crashed" in tasks.read()[0]["parked"]["reason"]


def test_who_takes_the_mark_out_by_hand_gets_one_more_try(
    rio: Agent, tasks: TaskList, path: str, clock: Turner
) -> None:
    tasks.add(New("x"))
    for _ in range(3):
        fail(rio, "task-001")
    clock.advance(3600)
    document = json.loads(file_of(path).read_bytes())
    del document["tasks"][0]["parked"]
    file_of(path).write_bytes(pretty(document))
    assert tasks.park() == []
    assert "parked" not in tasks.read()[0]
    fail(rio, "task-001")
    assert tasks.read()[0]["parked"]["attempts"] == 4


@pytest.mark.parametrize("value", ["0", '"three"', "true", "-1"])
def test_a_limit_that_is_none_is_refused(
    rio: Agent, tasks: TaskList, path: str, value: str
) -> None:
    tasks.add(New("x"))
    fail(rio, "task-001")
    Path(path, "holdfast.toml").write_text(
        f'format = 1\ntimezone = "UTC"\n[tasks]\npark_after = {value}\n', encoding="utf-8"
    )
    with pytest.raises(ConfigError):
        tasks.park()


# --- any order of verbs ---------------------------------------------------------------------

NEXT: dict[str, dict[Verb, str]] = {
    "pending": {"start": "active", "done": "completed", "drop": "dropped"},
    "active": {"done": "completed", "drop": "dropped", "reopen": "pending"},
    "completed": {"reopen": "pending"},
    "dropped": {"reopen": "pending"},
}


@pytest.mark.parametrize("status", NEXT)
@pytest.mark.parametrize("verb", STEPS)
def test_the_steps_are_these(status: str, verb: Verb) -> None:
    task = {"id": "task-001", "status": status, "completed_at": None, "outcome": None}
    assert set(allowed(task)) == NEXT[status].keys()
    if verb in NEXT[status]:
        after = moved(task, verb, "now")
        assert after is not None
        assert after["status"] == NEXT[status][verb]
        ended = after["status"] in ("completed", "dropped")
        assert (after["completed_at"] == "now") == ended
    elif STEPS[verb].to == status:
        assert moved(task, verb, "now") is None
    else:
        with pytest.raises(UsageError):
            moved(task, verb, "now")


class _Machine(RuleBasedStateMachine):
    """The list against a model of it, through a fresh handle each time."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.home = Home.open(self.folder.name, create=True, timezone="UTC", clock=Turner())
        self.agent = Agent(self.home, "rio")
        self.tasks = listed(self.home, self.agent)
        self.model: dict[str, str] = {}

    @rule(text=st.text(min_size=1, max_size=20).filter(str.strip))
    def add(self, text: str) -> None:
        task = self.tasks.add(New(text)).task
        assert task["id"] not in self.model
        self.model[task["id"]] = "pending"

    @rule(number=st.integers(1, 4), verb=st.sampled_from(sorted(STEPS)))
    def move(self, number: int, verb: Verb) -> None:
        id = f"task-{number:03d}"
        status = self.model.get(id)
        if status is None:
            with pytest.raises(NotFound):
                self.tasks.move(id, verb)
        elif verb in NEXT[status]:
            assert self.tasks.move(id, verb).applied
            self.model[id] = NEXT[status][verb]
        elif STEPS[verb].to == status:
            assert not self.tasks.move(id, verb).applied
        else:
            with pytest.raises(UsageError):
                self.tasks.move(id, verb)

    @rule(mark=st.text("xyz", max_size=3))
    def edit(self, mark: str) -> None:
        file = Path(self.folder.name, "state/rio/tasks.json")
        if file.exists():
            document = json.loads(file.read_bytes())
            file.write_bytes(pretty({**document, "mark": mark}))

    @invariant()
    def is_as_the_model_says(self) -> None:
        if hasattr(self, "tasks"):
            assert statuses(self.tasks) == self.model

    def teardown(self) -> None:
        if hasattr(self, "tasks"):
            self.tasks.close()
            self.agent.close()
            self.home.close()
            self.folder.cleanup()


TestAnyOrder = _Machine.TestCase
TestAnyOrder.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)


# --- through the shell ----------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "rio", "clay", "--timezone", "UTC")
    return made


def test_a_follow_up_of_nothing_is_reported(shell: Shell) -> None:
    ran = shell("task", "add", "--agent", "rio", "--follow-up-from", "task-009", "x", "--json")
    assert ran.json()["data"]["follow_up_from"] == "task-009"
    assert "task-009" in ran.err


def test_parked_tasks_are_listed_and_not_handed_out(shell: Shell) -> None:
    with (shell.home / "holdfast.toml").open("a", encoding="utf-8") as settings_file:
        settings_file.write("[tasks]\npark_after = 1\n")
    shell("task", "add", "--agent", "rio", "Mend the build")
    shell("run", "--agent", "rio", "--task", "task-001", "--", "false")
    (row,) = shell("task", "list", "--parked", "--json").rows()
    assert (row["state"], row["failures"]) == ("parked", 1)
    assert "exit code 1" in row["note"]
    assert "Mend the build" not in shell("session", "context", "--agent", "rio").out
    work = ("--agent", "rio", "--task", "task-001")
    for refused in (shell("run", *work, "--", "true"), shell("session", "start", *work)):
        assert refused.code == 2
        assert "task-001 is parked: failed 1 times" in refused.err
        assert "holdfast task reopen --agent rio task-001" in refused.err
    assert len(shell("session", "list", "--agent", "rio", "--json").rows()) == 1
    shell("task", "reopen", "--agent", "rio", "task-001")
    assert shell("task", "list", "--parked", "--json").rows() == []
    assert "Mend the build" in shell("session", "context", "--agent", "rio").out
    assert shell("run", *work, "--", "true").code == 0


def test_status_and_doctor_tell_of_parked_tasks(shell: Shell) -> None:
    for number in range(1, 6):
        shell("task", "add", "--agent", "rio", f"Mend build {number}")
    assert shell("status", "rio", "--json").rows()[0]["parked"] == []
    for _ in range(3):
        shell("run", "--agent", "rio", "--task", "task-003", "--", "false")
    shell("run", "--agent", "rio", "--", "true")  # what fails no more hides nothing
    why = "failed 3 times, the last time: exit code 1"

    listed = shell("status", "rio", "--json")
    (row,) = listed.rows()
    assert listed.code == 1
    assert row["parked"] == [{"task": "task-003", "reason": why}]
    assert row["troubles"] == [f"1 parked: task-003 ({why})"]
    assert "1 parked: task-003" in shell("status").out
    assert f"trouble  1 parked: task-003 ({why})" in shell("status", "rio").out
    shown = shell("agent", "show", "rio", "--json").json()["data"]
    assert shown["troubles"] == row["troubles"]
    assert shown["parked"] == row["parked"]
    assert f"task-003 is parked: {why}" in shell("doctor").out

    assert shell("task", "reopen", "--agent", "rio", "task-003").code == 0
    again = shell("status", "rio", "--json")
    assert (again.code, again.rows()[0]["parked"], again.rows()[0]["troubles"]) == (0, [], [])


def test_of_many_parked_tasks_status_names_the_first_and_counts_the_rest(shell: Shell) -> None:
    kinds = [("pending", {"reason": "a\nb"}), ("completed", True), ("active", True)]
    kinds += [("pending", {"attempts": 2}), ("pending", "wait"), ("pending", None)]
    parked = [
        {"id": f"task-{number:03d}", "status": status, "parked": reason}
        for number, (status, reason) in enumerate(kinds, 1)
    ]
    tasks = [*parked, "no task", {"parked": True}, {"id": 5, "status": "pending", "parked": [1]}]
    (shell.home / "state/rio/tasks.json").write_text(json.dumps({"tasks": tasks}), encoding="utf-8")
    (row,) = shell("status", "rio", "--json").rows()
    named = [each["task"] for each in row["parked"]]
    assert named == ["task-001", "task-003", "task-004", "task-005", "5"]
    (trouble,) = row["troubles"]
    assert trouble.startswith("5 parked: task-001 (a b), task-003 (by hand), task-004")
    assert trouble.endswith(", and 2 more")


def test_one_broken_list_hides_no_other(shell: Shell) -> None:
    shell("task", "add", "--agent", "clay", "x")
    saved_long_ago(shell.home / "state/rio/tasks.json", b'{"tasks": [\n{"parked": ')
    ran = shell("task", "list", "--json")
    assert (ran.code, [row["agent"] for row in ran.rows()]) == (1, ["clay"])
    assert "state/rio/tasks.json" in ran.err
    assert [row["agent"] for row in shell("status", "--json").rows()] == ["clay", "rio"]


@pytest.mark.parametrize("odd", ["a link", "too large"])
def test_one_odd_list_hides_no_other(shell: Shell, odd: str) -> None:
    for agent in ("rio", "clay"):
        shell("task", "add", "--agent", agent, "Wash up")
    file = shell.home / "state/rio/tasks.json"
    if odd == "a link":
        file.rename(shell.cwd / "mine.json")
        file.symlink_to(shell.cwd / "mine.json")
    else:
        file.write_bytes(pretty({"tasks": [{"id": "x", "description": "y" * (9 << 20)}]}))
    ran = shell("task", "list", "--json")
    assert (ran.code, [row["agent"] for row in ran.rows()]) == (1, ["clay"])
    where = "state/rio/tasks.json" if odd == "a link" else "the tasks of rio"
    assert ran.err.count(where) == 1
    board = shell("task", "board")
    assert board.code == 0
    assert "Wash up" in board.out
    assert where in board.err
    assert shell("task", "list", "--agent", "rio").code != 0
    assert shell("task", "list", "--agent", "nobody").code == 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"tasks": [\n', "not JSON: "),
        (b'{"tasks": 1}', "no list of objects under `tasks`"),
        (b"", "it is empty"),
        (b" \n", "it is empty"),
    ],
)
def test_a_broken_list_is_told_once_with_the_file_the_place_and_what_to_do(
    shell: Shell, data: bytes, why: str
) -> None:
    shell("task", "add", "--agent", "rio", "x")
    saved_long_ago(shell.home / "state/rio/tasks.json", data)
    for words in (("list",), ("board",), ("add", "--agent", "rio", "y")):
        said = shell("task", *words).err
        assert said.count("state/rio/tasks.json") == 1, said
        assert said.count(why) == 1, said
        assert "line 2 column 1" in said or "JSON" not in why
        assert "mend it with an editor" in said
    assert (shell.home / "state/rio/tasks.json").read_bytes() == data
    (shell.home / "state/rio/tasks.json").unlink()
    assert [row["description"] for row in shell("task", "list", "--json").rows()] == ["x"]


# --- the board ------------------------------------------------------------------------------


def test_a_board_is_made_anew_but_never_over_an_edit(shell: Shell) -> None:
    file = shell.cwd / "queue.md"
    shell("task", "add", "--agent", "rio", "Read the logs")
    assert shell("task", "board", "--out", "queue.md").code == 0
    shell("task", "add", "--agent", "clay", "Wash up")
    assert shell("task", "board", "--out", "queue.md").code == 0
    page = file.read_text("utf-8")
    assert "task-001 (medium, research) Wash up" in page
    edited = page.replace("- [ ] task-001 (medium, research) Read", "- [x] task-001 (high) Read")
    file.write_text(edited + "- [ ] (high) Feed the cat\n", encoding="utf-8")
    refused = shell("task", "board", "--out", "queue.md", "--json")
    assert refused.code == 2
    assert file.read_text("utf-8").endswith("Feed the cat\n")


def test_a_file_that_is_no_text_is_no_board(shell: Shell) -> None:
    (shell.cwd / "queue.md").write_bytes(b"\xff\x00\xfe")
    refused = shell("task", "board", "--out", "queue.md")
    assert (refused.code, "is no board" in refused.err) == (2, True)
    assert (shell.cwd / "queue.md").read_bytes() == b"\xff\x00\xfe"


@given(st.lists(st.text(min_size=1, max_size=30).filter(str.strip), max_size=5))
def test_what_an_agent_wrote_is_text_on_the_board(texts: list[str]) -> None:
    tasks = [
        {"id": f"task-{n:03d}", "description": text, "status": "pending", "priority": "low"}
        for n, text in enumerate(texts, 1)
    ]
    page = board({"rio": tasks})
    assert is_untouched(page)
    assert not is_untouched(page + "x")
    shown = [line.partition(") ")[2] for line in page.splitlines() if line.startswith("- [ ]")]
    assert [re.sub(r"\\(.)", r"\1", text) for text in shown] == [" ".join(t.split()) for t in texts]
    assert "<" not in page.partition("\n")[2].replace("\\<", "")
