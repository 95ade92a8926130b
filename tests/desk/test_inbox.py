"""Messages: delivered once, handed out until acknowledged, shown as data of a named sender."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.agent import Agent, End, Opened, Start
from holdfast.agents.context import compose, gather
from holdfast.agents.inbox import MOST_BODY, Inbox, Letter, New, rendered, trust
from holdfast.contracts.kinds import kind
from holdfast.errors import LeaseLost, NotFound, UsageError
from holdfast.process import Owner, this_process
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.agents.world import running
from tests.ledger.shell import Shell

DAY = 86_400.0


@pytest.fixture
def rio(home: Home) -> Iterator[Agent]:
    with Agent(home, "rio") as agent:
        yield agent


@pytest.fixture
def inbox(rio: Agent) -> Inbox:
    return rio.desk.inbox


def send(inbox: Inbox, subject: str = "Fees", **more: Any) -> str:
    said: dict[str, Any] = {"sender": "leo", "subject": subject, "body": "Who sets them?"}
    new = New(**{**said, **more})
    new.check()
    return inbox.deliver(new.named(inbox._home.clock.now()))  # pyright: ignore[reportPrivateUsage]


def take(inbox: Inbox, limit: int = 10) -> list[str]:
    return [each.record["subject"] for each in inbox.take("rio", seconds=60, limit=limit)]


def only(letters: list[Letter]) -> Letter:
    (letter,) = letters
    return letter


def put(path: str, name: str, data: bytes, age: float = 10.0) -> Path:
    """A file that somebody else left in the inbox a while ago."""
    folder = Path(path, "state/rio/inbox")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    when = Turner().now() - age
    os.utime(folder / name, (when, when))
    return folder / name


def foreign(**changes: Any) -> bytes:
    message = {"id": "m", "from": "leo", "to": "rio", "type": "flag", "subject": "s", "body": "b"}
    return json.dumps({**message, **changes}).encode()


# --- sending --------------------------------------------------------------------------------


def test_a_message_is_what_the_contract_says(inbox: Inbox, path: str, clock: Turner) -> None:
    id = send(
        inbox,
        priority="high",
        type="question",
        source_ref="leo/research",
        expires=clock.now() + DAY,
        thread="fees",
        sent_by="leo",
    )
    data = Path(path, f"state/rio/inbox/{id}.json").read_bytes()
    reading = kind("message").read(json.loads(data))
    assert reading.findings == []
    assert json.loads(data)["expires_at"] == "2023-11-15T12:00:00Z"


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": " "},
        {"subject": "x" * 501},
        {"body": "é" * MOST_BODY},
        {"id": "../x"},
        {"thread": "x" * 501},
    ],
)
def test_what_is_no_message_is_not_sent(inbox: Inbox, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        send(inbox, **wrong)
    assert inbox.waiting() == []


def test_high_before_normal_then_the_oldest(inbox: Inbox, clock: Turner) -> None:
    for subject, priority in (("a", "normal"), ("b", "high"), ("c", "normal"), ("d", "high")):
        send(inbox, subject, priority=priority)
        clock.advance(1)
    assert [each.record["subject"] for each in inbox.waiting()] == ["b", "d", "a", "c"]
    assert take(inbox) == ["b", "d", "a", "c"]


def test_what_expired_is_listed_and_not_handed_out(inbox: Inbox, clock: Turner) -> None:
    send(inbox, "late", expires=clock.now() + 60)
    send(inbox, "never", expires=None)
    clock.advance(61)
    assert only(inbox.expired()).record["subject"] == "late"
    assert take(inbox) == ["never"]
    assert only(inbox.expired()).record["subject"] == "late"
    assert inbox.waiting() == []


def test_fields_and_types_that_nobody_knows_are_kept(inbox: Inbox, path: str) -> None:
    put(path, "x.json", foreign(type="haiku", mood={"of": ["the", 1]}))
    claim = inbox.take("rio", seconds=60, limit=1)[0]
    assert claim.record["mood"] == {"of": ["the", 1]}
    inbox.box.ack(claim)
    assert only(inbox.finished("done")).record["type"] == "haiku"


# --- taking ---------------------------------------------------------------------------------


def test_who_dies_with_a_message_gives_it_back_marked(inbox: Inbox, clock: Turner) -> None:
    send(inbox)
    gone = this_process()._replace(started=1)
    inbox.take("rio", seconds=600, limit=1, owner=gone)
    claim = inbox.take("rio", seconds=60, limit=1)[0]
    assert (claim.redelivered, claim.attempt) == (True, 2)
    text = "".join(rendered([Letter(claim.id, "claimed", claim.record, claim.attempt)], "mark"))
    assert "redelivered: handed out before, this is try 2" in text
    clock.advance(61)
    assert inbox.take("rio", seconds=60, limit=1)[0].attempt == 3
    with pytest.raises(LeaseLost):
        inbox.box.ack(claim)


def test_a_message_that_nobody_can_deal_with_is_dead_and_can_be_revived(inbox: Inbox) -> None:
    id = send(inbox)
    for _ in range(5):
        inbox.box.give_back(inbox.take("rio", seconds=60, limit=1)[0], "no idea")
    letter = only(inbox.dead())
    assert (letter.id, letter.record["subject"]) == (id, "Fees")
    assert inbox.find(id).state == "dead"
    inbox.box.deliver(letter.record, id=letter.id)
    assert take(inbox) == ["Fees"]


def test_what_is_no_message_is_set_aside_by_name_and_the_others_arrive(
    inbox: Inbox, path: str, clock: Turner, home: Home
) -> None:
    outside = Path(path).parent / "secret"
    outside.write_text("root:x", encoding="utf-8")
    send(inbox, "before")
    put(path, "empty.json", b"")
    put(path, "broken.json", b'{"id": ')
    put(path, "x.json.tmp", b"{}")
    put(path, "large.json", foreign(body="x" * 5_000_000))
    put(path, "astray.json", foreign(to="clay"))
    put(path, "forged.json", foreign(**{"from": "../x"}))
    put(path, "nobody.json", foreign(**{"from": None}))
    folder = Path(path, "state/rio/inbox")
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to(outside)
    clock.advance(1)
    send(inbox, "after")
    assert take(inbox) == ["before", "after"]
    names = {
        *("empty.json", "broken.json", "x.json.tmp", "large.json", "astray.json", "forged.json"),
        *("nobody.json", "folder.json", "link.json"),
    }
    found = {letter.id: letter for letter in inbox.bad()}
    assert set(found) == names
    assert all(letter.note for letter in found.values())
    assert "clay" in found["astray.json"].note
    assert "../x" in found["forged.json"].note
    assert outside.read_text("utf-8") == "root:x"
    assert {each.name for each in Path(path).parent.iterdir()} == {"home", "secret"}
    audit = b"".join(each.read_bytes() for each in Path(path, "audit").glob("*.jsonl"))
    for name in ("large.json", "astray.json", "forged.json", "nobody.json"):
        assert name.encode() in audit


# --- acknowledging --------------------------------------------------------------------------


def claimed(agent: Agent) -> Letter:
    agent.desk.inbox.take("rio", seconds=60, limit=1)
    return only(agent.desk.inbox.claimed())


def flags(agent: Agent) -> int:
    return agent.metrics()["lifetime"]["cross_agent_flags_received"]


def test_a_flag_becomes_a_note_and_is_counted_once(rio: Agent, path: str) -> None:
    send(rio.desk.inbox, "Fees", body="Who\nsets them?")
    rio.desk.ack(claimed(rio))
    send(rio.desk.inbox, "fees", body="who sets THEM?")
    rio.desk.ack(claimed(rio))
    text = Path(path, "state/rio/memory.md").read_text("utf-8")
    assert text.endswith(
        '## Cross-Agent Flags Received\n- leo (2023-11-14): "Fees: Who sets them?"\n'
    )
    assert flags(rio) == 2  # two flags, one note


def test_other_messages_leave_no_note(rio: Agent, path: str) -> None:
    send(rio.desk.inbox, type="question")
    rio.desk.ack(claimed(rio))
    assert not Path(path, "state/rio/memory.md").exists()
    assert flags(rio) == 0


def test_a_flag_whose_receiver_died_in_between_is_counted_once(rio: Agent, clock: Turner) -> None:
    send(rio.desk.inbox)
    first = claimed(rio)
    assert first.claimed is not None
    rio.desk._keep_flag(first, first.claimed)  # pyright: ignore[reportPrivateUsage]
    clock.advance(61)
    second = claimed(rio)
    assert second.attempt == 2
    rio.desk.ack(second)
    assert flags(rio) == 1
    assert rio.desk.notes.read().count("Who sets them?") == 1
    # And the first one, who wakes up now, counts nothing.
    with pytest.raises(LeaseLost):
        rio.desk.ack(first)
    assert flags(rio) == 1


def test_who_was_killed_before_a_flag_was_done_counts_it_once(home: Home, rio: Agent) -> None:
    send(rio.desk.inbox)
    first = claimed(rio)
    assert first.claimed is not None
    for _ in range(2):  # each time in another process, as it were
        with Agent(home, "rio") as killed:
            killed.desk._keep_flag(first, first.claimed)  # pyright: ignore[reportPrivateUsage]
    rio.desk.ack(first)
    assert flags(rio) == 1


def test_of_one_message_there_is_one_task(rio: Agent) -> None:
    id = send(rio.desk.inbox, priority="high", type="task")
    letter = claimed(rio)
    made = [rio.desk.as_task(letter) for _ in range(2)]
    assert [each.applied for each in made] == [True, False]
    task = only_task(rio)
    assert (task["from_message"], task["priority"], task["description"]) == (id, "high", "Fees")
    assert "Who sets them?" in task["context"]


def only_task(agent: Agent) -> dict[str, Any]:
    (task,) = agent.desk.tasks.read()
    return task


# --- sessions -------------------------------------------------------------------------------


def begin(agent: Agent, role: str = "", owner: Owner | None = None) -> Opened:
    """A session that is told of its messages, as `run` and `session start` do it."""
    opened = agent.start(Start("research", role, 600), owner=owner)
    agent.desk.hand_out(opened.id, opened.fence, owner)
    return opened


def states(agent: Agent) -> dict[str, str]:
    box = agent.desk.inbox
    letters = [*box.waiting(), *box.claimed(), *box.finished("done"), *box.dead()]
    return {each.record["subject"]: each.state for each in letters}


def test_a_session_has_what_is_urgent_and_is_done_with_it_when_it_completes(rio: Agent) -> None:
    send(rio.desk.inbox, "urgent", priority="high")
    send(rio.desk.inbox, "other")
    opened = begin(rio)
    assert states(rio) == {"urgent": "claimed", "other": "waiting"}
    rio.end("", opened.fence, End("completed"))
    assert states(rio) == {"urgent": "done", "other": "waiting"}
    assert flags(rio) == 1


@pytest.mark.parametrize("outcome", ["error", "timeout"])
def test_what_a_failed_session_had_comes_back(rio: Agent, outcome: str) -> None:
    send(rio.desk.inbox, "urgent", priority="high")
    opened = begin(rio)
    rio.end("", opened.fence, End(outcome, None, {"kind": outcome, "message": "x"}))
    letter = only(rio.desk.inbox.waiting())
    assert letter.attempt == 2
    assert flags(rio) == 0


def test_what_a_crashed_session_had_comes_back(rio: Agent, clock: Turner) -> None:
    send(rio.desk.inbox, "urgent", priority="high")
    begin(rio, owner=this_process()._replace(started=1))
    assert only(rio.desk.inbox.claimed()).state == "waiting"  # whoever asks gets it
    rio.bury()
    assert only(rio.desk.inbox.waiting()).attempt == 2
    begin(rio)
    clock.advance(3600)
    begin(rio)  # the one before counts as crashed
    assert only(rio.desk.inbox.claimed()).attempt == 3


def test_who_died_after_the_end_of_a_session_leaves_its_messages_to_the_next(
    home: Home, rio: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(rio.desk.inbox, "urgent", priority="high")
    opened = begin(rio)
    with monkeypatch.context() as patched:
        patched.setattr(rio.desk, "settle", lambda: None)
        rio.end("", opened.fence, End("completed"))
    assert states(rio) == {"urgent": "claimed"}
    with Agent(home, "rio") as other:
        begin(other)
        assert states(other) == {"urgent": "done"}


def test_two_roles_have_each_their_own(rio: Agent) -> None:
    send(rio.desk.inbox, "a", priority="high")
    one = begin(rio)
    send(rio.desk.inbox, "b", priority="high")
    two = begin(rio, "extract")
    assert [each.record["subject"] for each in rio.desk.handed_out(two.id)] == ["b"]
    rio.end("", one.fence, End("completed"))
    assert states(rio) == {"a": "done", "b": "claimed"}
    rio.end("extract", two.fence, End("error", None, {"kind": "x", "message": "x"}))
    assert states(rio) == {"a": "done", "b": "waiting"}


def test_memory_that_cannot_be_read_keeps_no_session_from_its_end(rio: Agent, path: str) -> None:
    send(rio.desk.inbox, "urgent", priority="high")
    opened = begin(rio)
    Path(path, "state/rio/memory.md").write_bytes(b"\xff")
    rio.end("", opened.fence, End("completed"))
    assert rio.report()["last_session"]["outcome"] == "completed"
    assert states(rio) == {"urgent": "done"}


def test_looking_at_the_context_claims_nothing_and_shows_what_a_session_has(
    home: Home, rio: Agent
) -> None:
    send(rio.desk.inbox, "urgent", priority="high")
    assert "subject: urgent" in compose(gather(home, rio))
    assert states(rio) == {"urgent": "waiting"}
    begin(rio)
    assert "subject: urgent" in compose(gather(home, rio))


# --- for a model ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent_by", "told"),
    [
        ("leo", "session of leo"),
        ("clay", "but was sent in a session of clay"),
        (None, "claims to be from leo"),
    ],
)
def test_the_model_is_told_what_is_known_of_the_sender(sent_by: str | None, told: str) -> None:
    assert told in trust({"from": "leo", "sent_by": sent_by})


@given(st.dictionaries(st.sampled_from(["from", "subject", "body", "trust", "id"]), st.text()))
def test_no_message_leaves_its_marks(record: dict[str, str]) -> None:
    text = "\n".join(rendered([Letter("m-1", "waiting", record)], "0123456789abcdef"))
    inside = text.split("<message 0123456789abcdef>\n")
    assert len(inside) == 2
    assert text.rstrip().endswith("</message 0123456789abcdef>")
    assert text.count("0123456789abcdef") == 2
    assert "id: m-1" in inside[1]


# --- purging --------------------------------------------------------------------------------


def test_purging_packs_what_it_removes(inbox: Inbox, path: str, clock: Turner) -> None:
    ids = [send(inbox, subject) for subject in "abc"]
    for claim in inbox.take("rio", seconds=60, limit=2):
        inbox.box.ack(claim)
    for file in Path(path, "state/rio/inbox/.done").iterdir():
        os.utime(file, (clock.now(), clock.now()))
    clock.advance(91 * DAY)
    before = clock.now() - 90 * DAY
    assert inbox.purge(before, "state/rio/purged", dry_run=True) == (2, [])
    assert len(inbox.finished("done")) == 2
    count, files = inbox.purge(before, "state/rio/purged")
    assert count == 2
    packed = Path(path, files[0]).read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
        lines = reader.read().splitlines()
    assert [json.loads(line)["message"]["id"] for line in lines] == sorted(ids)[:2]
    assert inbox.finished("done") == []
    assert inbox.purge(before, "state/rio/purged") == (0, [])
    assert len(inbox.waiting()) == 1


# --- through the shell ----------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "rio", "clay", "leo", "--timezone", "UTC")
    return made


def test_to_all_is_to_everybody_else_and_counted_for_the_sender(shell: Shell) -> None:
    words = ("inbox", "send", "--from", "leo", "--to", "all", "--subject", "s", "-", "--json")
    sent = shell(*words, said=b"from the pipe\n").json()["data"]
    assert sent["to"] == ["clay", "rio"]
    again = ("--id", sent["id"])
    assert shell(*words, *again, said=b"from the pipe\n").code == 0
    for name in ("clay", "rio"):
        (row,) = shell("inbox", "list", "--agent", name, "--json").rows()
        assert (row["id"], row["from"]) == (sent["id"], "leo")
    metrics = json.loads((shell.home / "state/leo/metrics.json").read_bytes())
    assert metrics["lifetime"]["cross_agent_flags_sent"] == 2


SEND = ("inbox", "send", "--to", "rio", "--subject", "s", "b", "--json")


def sending(shell: Shell, *words: str, before: str = "") -> tuple[str, ...]:
    """A program that sends, for a session."""
    return "sh", "-c", f"{before} exec {shlex.join(map(str, shell.command([*SEND, *words])))}"


def received(shell: Shell) -> list[tuple[str, str | None, str]]:
    """Of each message that rio has: from, sent_by, and what a model is told of it."""
    rows = shell("inbox", "list", "--agent", "rio", "--json").rows()
    shown = [shell("inbox", "show", "--agent", "rio", row["id"], "--json") for row in rows]
    told = [ran.json()["data"]["trust"] for ran in shown]
    return [(row["from"], row.get("sent_by"), trust) for row, trust in zip(rows, told, strict=True)]


def test_in_whose_session_a_message_was_sent_is_recorded(shell: Shell) -> None:
    for words in (("--from", "leo"), ()):
        ran = shell("run", "--agent", "clay", "--", *sending(shell, *words))
        assert ran.code == 0, ran.err
    assert received(shell) == [
        ("leo", "clay", "says it is from leo, but was sent in a session of clay"),
        ("clay", "clay", "sent in a session of clay"),
    ]
    assert shell(*SEND).code == 2


@pytest.mark.parametrize("before", ["HOLDFAST_AGENT=leo", "HOLDFAST_AGENT=leo HOLDFAST_TREE=$T"])
def test_what_the_environment_says_of_the_sender_is_a_claim(shell: Shell, before: str) -> None:
    waits = ("run", "--agent", "leo", "--", "sh", "-c", "echo on; exec sleep 60")
    with running(shell, *waits, stdout=subprocess.PIPE) as leo:
        assert leo.stdout is not None
        assert leo.stdout.readline() == b"on\n"
        begun = (shell.home / "state/leo/journal.jsonl").read_text().splitlines()
        tree = next(each for each in map(json.loads, begun) if each.get("event") == "session_start")
        before = before.replace("$T", tree["tree"]["id"])
        send = sending(shell, "--from", "leo", before=before)
        assert shell("run", "--agent", "clay", "--", *send).code == 0
        assert shell(*SEND, env={"HOLDFAST_AGENT": "leo"}).code == 0
    told = ("leo", None, "claims to be from leo; nothing confirms it")
    assert received(shell) == [told, told]


@pytest.mark.parametrize("changed", ["dropped", "body", "sent_by"])
def test_what_a_file_says_of_its_sender_is_a_claim(shell: Shell, changed: str) -> None:
    inbox = shell.home / "state/rio/inbox"
    assert shell("run", "--agent", "clay", "--", *sending(shell)).code == 0
    (file,) = inbox.glob("*.json")
    record = json.loads(file.read_bytes())
    if changed == "dropped":
        file.unlink()
        del record["proof"]
    else:
        record["from"] = record[changed] = "leo"
    file.write_text(json.dumps(record))
    for _ in range(2):
        ((_, sent_by, told),) = received(shell)
        assert (sent_by, told) == (None, f"claims to be from {record['from']}; nothing confirms it")
        taken = shell("inbox", "take", "--agent", "rio", "--json").json()
        assert "sent_by" not in json.dumps(taken)


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "nobody", "--subject", "s", "b"),
        ("--to", "rio,nobody", "--subject", "s", "b"),
        ("--to", "../rio", "--subject", "s", "b"),
        ("--to", "rio", "--subject", "s", "--expires", "2020-01-01", "b"),
        ("--to", "rio", "--subject", "s", "x" * 120_000 + "é" * 80_000),
    ],
)
def test_a_message_that_cannot_be_sent_is_sent_to_nobody(
    shell: Shell, words: tuple[str, ...]
) -> None:
    *options, body = words
    (shell.cwd / "body").write_text(body, encoding="utf-8")
    ran = shell("inbox", "send", "--from", "leo", *options, "@body", "--json")
    assert ran.code in (2, 4)
    assert ran.error()["hint"]
    assert not list((shell.home / "state/rio").glob("inbox/*.json"))


def test_take_ack_and_return(shell: Shell) -> None:
    send = ("inbox", "send", "--from", "leo", "--to", "rio", "--type", "question")
    id = shell(*send, "--subject", "Fees", "Who?\nWhy?", "--json").json()["target"]
    on = ("--agent", "rio")
    early = shell("inbox", "ack", *on, id, "--json")
    assert (early.code, "inbox take" in early.error()["hint"]) == (2, True)
    text = shell("inbox", "take", *on).out
    assert "Who?\nWhy?\n</message " in text
    assert "never an instruction" in text
    assert shell("inbox", "return", *on, id).code == 0
    (row,) = shell("inbox", "take", *on, "--lease", "1h", "--json").rows()
    assert (row["attempt"], row["redelivered"]) == (2, True)
    assert shell("inbox", "ack", *on, row["claim"], "--json").json()["applied"] is True
    assert shell("inbox", "ack", *on, id, "--json").json()["applied"] is False
    assert shell("inbox", "show", *on, id, "--json").json()["data"]["state"] == "done"
    assert shell("inbox", "show", *on, "nothing").code == 4


def test_a_command_is_told_of_urgent_messages_and_has_them_until_it_ends(shell: Shell) -> None:
    send = ("inbox", "send", "--from", "leo", "--to", "rio", "--priority", "high")
    shell(*send, "--subject", "Fees", "Who?")
    code = (
        "import os, pathlib, sys\n"
        "print(pathlib.Path(os.environ['HOLDFAST_CONTEXT']).read_text())\n"
        "print(os.listdir(os.environ['HOLDFAST_HOME'] + '/state/rio/inbox/.claimed'))\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    run = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    failed = shell(*run, "3")
    assert "subject: Fees" in failed.out
    assert "~session-" in failed.out
    (row,) = shell("inbox", "list", "--agent", "rio", "--json").rows()
    assert (row["state"], row["attempt"]) == ("waiting", 2)
    assert "redelivered: " in shell(*run, "0").out
    assert "Who?" in (shell.home / "state/rio/memory.md").read_text("utf-8")
    assert len(shell("inbox", "list", "--agent", "rio", "--done", "--json").rows()) == 1


def test_a_session_step_by_step_gets_its_context_as_a_file(shell: Shell) -> None:
    send = ("inbox", "send", "--from", "leo", "--to", "rio", "--priority", "high")
    shell(*send, "--subject", "Fees", "Who?")
    begun = shell("session", "start", "--agent", "rio", "--json").json()["data"]
    assert "subject: Fees" in Path(begun["context"]).read_text("utf-8")
    shell("session", "end", "--agent", "rio", "--outcome", "completed")
    assert len(shell("inbox", "list", "--agent", "rio", "--done", "--json").rows()) == 1


# --- many at once ---------------------------------------------------------------------------

SENDERS, EACH, TAKERS, KILLS = 5, 40, 3, 4
"""The harness `inbox` does it with thousands."""
SENDER = """
import sys
from holdfast.agents.inbox import Inbox, New
from holdfast.store.home import Home
from holdfast.process import Owner
with Home.open(sys.argv[1]) as home:
    inbox = Inbox(home, 'rio', 'state/rio/inbox')
    for number in range(int(sys.argv[3])):
        new = New('leo', f'{sys.argv[2]}.{number}', 'b' * 300)
        inbox.deliver(new.named(home.clock.now()))
"""
TAKER = """
import os, sys
from holdfast.agents.inbox import Inbox
from holdfast.errors import LeaseLost
from holdfast.store.home import Home
from holdfast.process import Owner
from holdfast.process import this_process
with Home.open(sys.argv[1]) as home, open(sys.argv[2], 'a', encoding='utf-8') as log:
    inbox = Inbox(home, 'rio', 'state/rio/inbox')
    while not os.path.exists(sys.argv[3]) or inbox.waiting() or inbox.claimed():
        for claim in inbox.take('rio', seconds=30, limit=10, owner=this_process()):
            inbox.box.ack(claim)
            os.write(log.fileno(), (claim.record['subject'] + '\\n').encode())
"""


def test_messages_through_takers_that_die_are_acknowledged_once_each(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "--timezone", "UTC")
    acked, all_sent = tmp_path / "acked", tmp_path / "all-sent"
    chance = random.Random(1)

    def start(code: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, str(shell.home), *words]
        return subprocess.Popen(command, env=shell.environment())

    senders = [start(SENDER, str(n), str(EACH)) for n in range(SENDERS)]
    takers = [start(TAKER, str(acked), str(all_sent)) for _ in range(TAKERS)]
    killed = 0
    try:
        deadline = time.monotonic() + 300
        while any(each.poll() is None for each in (*senders, *takers)):
            assert time.monotonic() < deadline
            if all(each.poll() == 0 for each in senders):
                all_sent.touch()
            time.sleep(0.05)
            if killed < KILLS and acked.exists() and acked.stat().st_size > 40 * killed:
                at = chance.randrange(TAKERS)
                takers[at].kill()
                takers[at].wait()
                takers[at] = start(TAKER, str(acked), str(all_sent))
                killed += 1
    finally:
        for each in (*senders, *takers):
            each.kill()
            each.wait()
    assert killed >= KILLS // 2
    assert [each.returncode for each in senders] == [0] * SENDERS
    with Home.open(str(shell.home)) as home:
        inbox = Inbox(home, "rio", "state/rio/inbox")
        done = [letter.record["subject"] for letter in inbox.finished("done")]
        assert [inbox.waiting(), inbox.claimed(), inbox.dead(), inbox.bad()] == [[], [], [], []]
    assert sorted(done) == sorted(f"{s}.{n}" for s in range(SENDERS) for n in range(EACH))
    # What a taker was told that it had acknowledged, nobody else was told.
    told = acked.read_text("utf-8").split()
    assert len(set(told)) == len(told)
    assert len(told) >= len(done) - killed


def test_a_message_that_is_nowhere_is_not_found(inbox: Inbox) -> None:
    with pytest.raises(NotFound):
        inbox.find("x")
