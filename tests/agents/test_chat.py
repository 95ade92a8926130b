"""Talking with an agent, as somebody at a terminal or a script does."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent
from holdfast.agents.chat import Chat
from holdfast.calls.conversation import Conversation
from holdfast.errors import DiskFull
from holdfast.layout import HOLDFAST
from holdfast.models.scripted import Scripted
from holdfast.store.home import Home
from tests.agents.world import until
from tests.ledger.shell import PATIENCE, PROGRAM, Shell

SCRIPT = r"""
replies:
  - {reply: Read the logs., cost_usd: 0.25, usage: {input_tokens: 40, output_tokens: 4}}
  - {match: password, reply: "It is \x1b[31mred\x1b[0m"}
  - {match: fail, error: not_authorised, message: no luck}
  - {reply: Second., cost_usd: 0.25}
"""


@pytest.fixture
def shell(shell: Shell) -> Shell:
    """Memory is searched by words: what weighs meanings takes longer to load than a chat."""
    with (shell.home / "holdfast.toml").open("a", encoding="utf-8") as settings:
        settings.write('\n[memory]\nembedder = "none"\n')
    return shell


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.yaml"
    path.write_text(SCRIPT, encoding="utf-8")
    return f"scripted:{path}"


def lines(shell: Shell) -> list[dict[str, object]]:
    text = (shell.home / "state/rio/memory.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_one_question_is_a_session_with_its_cost(shell: Shell, script: str) -> None:
    shell("task", "add", "--agent", "rio", "Fix the flaky test")
    said = shell("agent", "chat", "rio", "What is next?", "--model", script)
    assert (said.code, said.out) == (0, "Read the logs.\n")
    session = shell("session", "list", "--agent", "rio", "--json").rows()[-1]
    assert (session["status"], session["role"]) == ("completed", "chat")
    found = shell("session", "show", session["session_id"], "--json").json()["data"]
    assert (found["cost_usd"], found["tokens_used"], found["model"]) == (0.25, 44, script)
    spent = shell("budget", "show", "rio", "--json").rows()[0]
    assert (spent["usd"], spent["unknown"]) == (0.25, 0)
    told = [line["content"] for line in lines(shell) if line["role"] == "system"]
    assert told[0] == "You are rio."
    assert "Fix the flaky test" in str(told[1])
    assert "running" not in str(told[1])


def test_what_was_said_before_is_told_in_the_next_session(shell: Shell) -> None:
    for text in ("My name is Ada.", "Who am I?"):
        shell("agent", "chat", "rio", text, "--model", "scripted:echo")
    found = shell("agent", "chat", "rio", "again", "--model", "scripted:echo", "--json").json()
    assert found["data"]["input_tokens"] > 20
    asked = [line for line in lines(shell) if line["role"] == "user"]
    assert [line["content"] for line in asked] == ["My name is Ada.", "Who am I?", "again"]


def test_every_turn_is_told_once_in_the_ledger_and_in_the_topics(shell: Shell) -> None:
    for text in ("Hello you", "hello again", "Bye"):
        shell("agent", "chat", "rio", text, "--model", "scripted:echo")
    told = [row for row in shell("ledger", "list", "--json").rows() if "turn" in row["data"]]
    assert [row["summary"] for row in told] == ["scripted:echo replied"] * 3
    assert len({row["data"]["turn"] for row in told}) == 3
    text = (shell.home / "state/rio/topics.jsonl").read_text(encoding="utf-8")
    topics = [json.loads(line)["topic"] for line in text.splitlines()]
    assert [topic for topic in topics if "summaries" not in topic] == [
        *("chat/user/hello", "chat/assistant/you") * 2,
        *("chat/user/bye", "chat/assistant/you"),
    ]
    assert shell("check", "--json").code == 0
    assert shell("validate", str(shell.home), "--json").json()["counts"]["warnings"] == 0


def test_a_question_of_somebody_who_was_killed_is_ended_by_the_next_one(
    shell: Shell, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.yaml"
    slow.write_text("replies: [{reply: late, delay: 60}]", encoding="utf-8")
    words = [PROGRAM, "--home", str(shell.home), "agent", "chat", "rio", "hi"]
    asker = subprocess.Popen([*words, "--model", f"scripted:{slow}"])
    turns = shell.home / "state/rio/turns.json"
    until(lambda: turns.exists() and json.loads(turns.read_bytes())["waiting"])
    asker.kill()
    asker.wait()
    shell("agent", "chat", "rio", "again", "--model", "scripted:echo")
    ended = [line for line in lines(shell) if line["meta"].get("error") == "abandoned"]  # type: ignore[attr-defined]
    assert len(ended) == 1
    shown = json.loads(turns.read_bytes())
    assert shown["waiting"] == {}
    assert [each["unknown"] for each in shown["sessions"].values()] == [1, 0]


def test_nothing_is_no_question(shell: Shell) -> None:
    for text in ("", " \n"):
        refused = shell("agent", "chat", "rio", text, "--model", "scripted:echo", "--json")
        assert refused.error()["code"] == "usage"
    assert shell("session", "list", "--agent", "rio", "--json").rows() == []


def test_a_reply_cannot_paint_the_terminal(shell: Shell, script: str) -> None:
    said = shell("agent", "chat", "rio", "the password?", "--model", script)
    assert "\x1b" not in said.out
    assert "red" in said.out


def test_a_failed_question_ends_the_session_in_error_with_the_reason(
    shell: Shell, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("replies: [{error: not_authorised, message: 'no key'}]", encoding="utf-8")
    said = shell("agent", "chat", "rio", "hi", "--model", f"scripted:{broken}", "--json")
    assert said.code == 1
    assert said.error()["code"] == "not_authorised"
    session = shell("session", "list", "--agent", "rio", "--json").rows()[-1]
    assert session["status"] == "error"
    assert lines(shell)[-1]["meta"]["error"] == "not_authorised"  # type: ignore[index]


def test_an_answer_longer_than_a_line_of_the_log_is_kept_in_part(shell: Shell) -> None:
    flood = "command:sh -c 'yes words | head -c 9000000'"
    said = shell("agent", "chat", "rio", "q", "--model", flood, "--json")
    assert said.code == 0
    assert str(lines(shell)[-1]["content"]).endswith(" characters left out]")
    assert shell("session", "list", "--agent", "rio", "--json").rows()[-1]["cost_usd"] is None


def test_a_turn_whose_end_the_disk_did_not_take_makes_a_session_of_unknown_cost(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("no space left", hint="")

    monkeypatch.setattr(Conversation, "end", full)
    with (
        Home.open(str(shell.home)) as home,
        Agent(home, "rio", HOLDFAST) as agent,
        pytest.raises(DiskFull),
        Chat(home, agent, Scripted(["Yes."])) as chat,
    ):
        chat.say("q")
    assert shell("session", "list", "--agent", "rio", "--json").rows()[-1]["cost_usd"] is None


@pytest.mark.parametrize("broken", ["", '{"agent_id": "rio", ', "[]"])
def test_nobody_is_asked_in_the_name_of_an_agent_whose_persona_cannot_be_read(
    shell: Shell, broken: str
) -> None:
    (shell.home / "state/rio/manifest.json").write_text(broken, encoding="utf-8")
    said = shell("agent", "chat", "rio", "hi", "--model", "scripted:echo", "--json")
    assert said.error()["code"] == "corrupt"
    assert "manifest.json cannot be read" in said.error()["message"]
    assert shell("session", "list", "--agent", "rio", "--json").rows() == []


def test_a_limit_of_money_is_kept(shell: Shell, script: str) -> None:
    said = shell("agent", "chat", "rio", "x", "--model", script, "--max-cost", "0.1", "--json")
    assert said.error()["code"] == "over_budget"
    assert shell("budget", "show", "rio", "--json").rows()[0]["usd"] == 0.0
    assert not (shell.home / "state/rio/memory.jsonl").exists()


def test_a_reply_that_has_to_be_an_object_is_one(shell: Shell) -> None:
    schema = '{"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}'
    words = ("agent", "chat", "rio", "?", "--model", "scripted:echo", "--schema", schema)
    assert shell(*words, "--json").json()["data"]["value"] == {"ok": True}
    assert shell(*words[:-1], "[1]", "--json").error()["code"] == "usage"


@pytest.mark.parametrize(
    ("named", "code"), [("scripted:echo", 0), ("gemma3:4b", 2), ("command:touch hello", 2)]
)
def test_a_persona_names_its_model_but_no_command(shell: Shell, named: str, code: int) -> None:
    patch = json.dumps({"runtime": {"model": named}})
    assert shell("agent", "edit", "rio", "--patch", patch).code == 0
    assert shell("agent", "chat", "rio", "Hello").code == code
    assert not (shell.home.parent / "hello").exists()
    settings = shell.home / "holdfast.toml"
    before = settings.read_text(encoding="utf-8")
    settings.write_text(f'{before}\n[models]\ndefault = "scripted:echo"\n', encoding="utf-8")
    assert shell("agent", "chat", "rio", "Hello").code == 0


def test_the_settings_name_a_model_but_get_to_run_no_command(shell: Shell) -> None:
    settings = shell.home / "holdfast.toml"
    before = settings.read_text(encoding="utf-8")
    assert shell("agent", "chat", "rio", "x", "--json").error()["code"] == "usage"
    settings.write_text(before + '\n[models]\ndefault = "scripted:echo"\n', encoding="utf-8")
    assert shell("agent", "chat", "rio", "x").out == "You said: x\n"
    settings.write_text(before + '\n[models]\ndefault = "command:rm -rf /"\n', encoding="utf-8")
    refused = shell("agent", "chat", "rio", "x", "--json").error()
    assert refused["code"] == "config"
    assert "rm -rf" in refused["message"]


def test_without_a_terminal_there_has_to_be_something_to_say(shell: Shell) -> None:
    refused = shell("agent", "chat", "rio", "--model", "scripted:echo", "--json").error()
    assert refused["code"] == "usage"
    assert shell("agent", "chat", "rio", "-", "--model", "scripted:echo", said=b"hello").out == (
        "You said: hello\n"
    )


def typed(shell: Shell, model: str, *lines: str, term: str = "dumb") -> str:
    """What somebody sees who types these lines at a terminal, one after the other."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "--home", str(shell.home), "agent", "chat", "rio", "--model", model],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": term, "INPUTRC": os.devnull},
    )
    os.close(theirs)
    for line in lines:
        os.write(ours, line.encode() + b"\n")
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the other end is closed
    assert process.wait(PATIENCE) == 0
    os.close(ours)
    return seen.decode()


def test_at_a_terminal_one_talks_line_by_line(shell: Shell, script: str) -> None:
    shell("task", "add", "--agent", "rio", "Fix the flaky test")
    shell("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "See #12")
    words = ("/tasks", "/inbox", "fail please", "/cost", "/memory", "/history", "/help", "/cots")
    text = typed(shell, script, "What is next?", *words, "/quit")
    for part in (
        "talking with rio",
        "Read the logs.",
        "(pending) Fix the flaky test",
        "leo: Fees",
        "no luck",
        "2 turns, 44 tokens, 0.2500 USD",
        "Dead Ends",
        "assistant: Read the logs.",
        "/quit or Ctrl-D",
        "There is no /cots, did you mean /cost?",
    ):
        assert part in text, part
    session = shell("session", "list", "--agent", "rio", "--json").rows()[-1]
    assert session["status"] == "completed"


def test_the_arrow_keys_call_up_what_was_asked_also_before_this_session(shell: Shell) -> None:
    shell("agent", "chat", "rio", "the first", "--model", "scripted:echo")
    up = "\x1b[A"
    typed(shell, "scripted:echo", up, "the second", up, "/quit", term="xterm")
    asked = [line["content"] for line in lines(shell) if line["role"] == "user"]
    assert asked == ["the first", "the first", "the second", "the second"]


def ended_topics(shell: Shell) -> list[tuple[str, str]]:
    text = (shell.home / "state/rio/topics.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    ends = [each for each in found if each["topic"] == "chat/assistant/summaries"]
    return [(each["meta"]["session_id"], each["text"]) for each in ends]


def test_the_end_of_every_session_is_told_once_in_the_topics(shell: Shell) -> None:
    shell("agent", "chat", "rio", "Hello", "--model", "scripted:echo")
    shell("run", "--agent", "rio", "--", "echo", "All read")
    shell("session", "start", "--agent", "rio")
    shell("session", "end", "--agent", "rio", "--outcome", "completed", "--summary", "Nothing new")
    told = ended_topics(shell)
    assert [text for _, text in told] == ["1 turn with scripted:echo", "All read", "Nothing new"]
    assert len({session for session, _ in told}) == 3
    shell("session", "sweep")
    assert ended_topics(shell) == told
    assert shell("check", "--json").code == 0
    assert shell("validate", str(shell.home), "--json").json()["counts"]["warnings"] == 0


def test_ends_that_a_dead_process_left_untold_are_told_by_the_next(shell: Shell) -> None:
    shell("run", "--agent", "rio", "--", "echo", "First")
    topics = shell.home / "state/rio/topics.jsonl"
    # As if the process had died after the journal; of so few lines no place is kept.
    topics.unlink()
    assert not (shell.home / "cache/retold").exists()
    shell("run", "--agent", "rio", "--", "echo", "Second")
    assert [text for _, text in ended_topics(shell)] == ["First", "Second"]


def test_settings_name_a_fallback_and_how_often_a_model_may_be_asked(
    shell: Shell, tmp_path: Path
) -> None:
    down = tmp_path / "down.yaml"
    down.write_text("replies:\n  - {error: not_authorised}\n", encoding="utf-8")
    settings = shell.home / "holdfast.toml"
    before = settings.read_text(encoding="utf-8")
    models = '\n[models]\nper_minute = 9\nfallback = ["{}"]\n'
    settings.write_text(before + models.format("scripted:echo"), encoding="utf-8")
    ran = shell("agent", "chat", "rio", "hi", "--model", f"scripted:{down}", "--json")
    assert "You said: hi" in ran.out
    assert [row["error"] for row in ran.json()["data"]["tries"]] == ["not_authorised"]
    settings.write_text(before + models.format("command:rm -rf /"), encoding="utf-8")
    refused = shell("agent", "chat", "rio", "hi", "--model", "scripted:echo", "--json")
    assert "as a fallback" in refused.error()["message"]
    settings.write_text(before + "\n[models]\nper_minute = 0\n", encoding="utf-8")
    wrong = shell("agent", "chat", "rio", "hi", "--model", "scripted:echo", "--json")
    assert "models.per_minute = 0" in wrong.error()["message"]
