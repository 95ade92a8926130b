"""`holdfast hook claude-code`: events as Claude Code sends them, and as nobody should."""

from __future__ import annotations

import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.agents import hooked, tools
from holdfast.agents.agent import Agent, Start
from holdfast.clock import SystemClock
from holdfast.errors import BadValue
from holdfast.store.home import Home
from tests.ledger.shell import PATIENCE, Ran, Shell, ended, entries_in

CLAUDE = "8c35adc1-1c1f-4bb8-9d0e-2f0f4f7c1a11"


def event(name: str, **fields: Any) -> dict[str, Any]:
    common = {
        "session_id": CLAUDE,
        "transcript_path": "/nowhere/x.jsonl",
        "cwd": "/nowhere",
        "permission_mode": "default",
        "hook_event_name": name,
    }
    return {**common, **fields}


def used(call: str | None, tool: str = "Bash", **given: Any) -> dict[str, Any]:
    about = event("PostToolUse", tool_name=tool, tool_input=given, tool_response={"stdout": "x"})
    return about if call is None else {**about, "tool_use_id": call}


def hook(shell: Shell, told: Any, *words: str, env: dict[str, str] | None = None) -> Ran:
    data = told if isinstance(told, bytes) else json.dumps(told).encode()
    return shell("hook", "claude-code", "--agent", "rio", *words, env=env or {}, said=data)


def did(shell: Shell, told: Any, *words: str, env: dict[str, str] | None = None) -> str:
    ran = hook(shell, told, "--json", *words, env=env)
    assert (ran.code, ran.err) == (0, "")
    return ran.json()["data"]["did"]


def journal(shell: Shell, agent: str = "rio") -> list[dict[str, Any]]:
    file = shell.home / "state" / agent / "journal.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [record for line in lines if "event" in (record := json.loads(line))]


def events(shell: Shell) -> list[str]:
    return [line["event"] for line in journal(shell)]


def shown(shell: Shell, name: str = "session.json") -> dict[str, Any]:
    return json.loads((shell.home / "state/rio" / name).read_bytes())


def test_a_conversation_is_one_session_from_its_start_to_its_end(shell: Shell) -> None:
    (shell.home / "state/rio/memory.md").write_text("# Memory\n\n## Facts\n\n- Fees are voted\n")
    said = hook(shell, event("SessionStart", source="startup", model="opus"))
    assert (said.code, said.err) == (0, "")
    output = said.json()["hookSpecificOutput"]
    assert output["hookEventName"] == "SessionStart"
    assert "Fees are voted" in output["additionalContext"]
    assert did(shell, used("t1", command="ls")) == "noted"
    assert did(shell, used("t2", "Write", file_path="/p/a.md", content="secret prose")) == "noted"
    failed = event("PostToolUseFailure", tool_name="Read", tool_input={}, error="no such file")
    assert did(shell, {**failed, "tool_use_id": "t3"}) == "noted"
    assert did(shell, event("SessionEnd", reason="prompt_input_exit")) == "ended"
    first, *calls, last = journal(shell)
    assert (first["event"], first["model"]) == ("session_start", "opus")
    assert [call["event"] for call in calls] == ["tool_use"] * 3
    assert [call["tool"] for call in calls] == ["Bash", "Write", "Read"]
    assert calls[2]["failed"] == "no such file"
    assert (last["event"], last["outcome"], last["reason"]) == (
        "session_end",
        "completed",
        "prompt_input_exit",
    )
    assert last["measured"]["files_touched"] == ["/p/a.md"]
    assert shown(shell)["tools"]["failed"] == 1
    assert "cost unknown" in shown(shell, "report.json")["summary"]
    assert "secret prose" not in (shell.home / "state/rio/journal.jsonl").read_text()
    assert [entry["event"] for entry in entries_in(shell.home, "rio")] == [
        "task_start",
        "task_result",
    ]


def test_an_event_that_is_told_twice_counts_once(shell: Shell) -> None:
    for told, what in [
        (event("SessionStart", source="startup"), "began"),
        (used("t1", command="ls"), "noted"),
        (event("SessionEnd", reason="other"), "ended"),
    ]:
        assert [did(shell, told), did(shell, told)] == [what, "nothing"]
    assert events(shell) == ["session_start", "tool_use", "session_end"]
    assert did(shell, event("SessionStart", source="startup")) == "nothing"
    assert did(shell, used("t1", command="ls")) == "nothing"
    assert shown(shell, "metrics.json")["lifetime"]["sessions_total"] == 1


@pytest.mark.parametrize("source", ["resume", "compact", "clear"])
def test_a_conversation_that_goes_on_is_the_same_session(shell: Shell, source: str) -> None:
    hook(shell, event("SessionStart", source="startup"))
    again = hook(shell, event("SessionStart", source=source))
    assert "additionalContext" in again.json()["hookSpecificOutput"]
    assert events(shell) == ["session_start"]


def test_a_conversation_that_is_resumed_after_its_end_is_the_next_session(shell: Shell) -> None:
    hook(shell, event("SessionStart", source="startup"))
    hook(shell, event("SessionEnd", reason="logout"))
    assert did(shell, event("SessionStart", source="compact")) == "nothing"
    assert did(shell, event("SessionStart", source="resume")) == "began"
    assert events(shell) == ["session_start", "session_end", "session_start"]


def test_a_conversation_whose_start_was_missed_begins_with_what_comes_first(shell: Shell) -> None:
    assert did(shell, event("SessionEnd", reason="other")) == "nothing"
    assert did(shell, used("t1", command="ls")) == "noted"
    assert events(shell) == ["session_start", "tool_use"]


def test_a_session_of_run_is_joined_and_left_to_run(shell: Shell) -> None:
    ran = shell("session", "start", "--agent", "rio", "--type", "research", "--json")
    within = {"HOLDFAST_SESSION": ran.json()["target"]}
    assert did(shell, event("SessionStart", source="startup"), env=within) == "joined"
    assert did(shell, event("SessionStart", source="startup"), env=within) == "nothing"
    assert did(shell, used("t1", command="ls"), env=within) == "noted"
    assert did(shell, event("SessionEnd", reason="other"), env=within) == "nothing"
    assert events(shell) == ["session_start", "joined", "tool_use"]
    assert {line["session_id"] for line in journal(shell)} == {ran.json()["target"]}
    assert shell("session", "end", "--agent", "rio", "--outcome", "completed").code == 0


def test_what_is_known_of_the_session_of_somebody_else_changes_nothing(shell: Shell) -> None:
    stale = {"HOLDFAST_SESSION": "2020-01-01_rio_001"}
    assert did(shell, event("SessionStart", source="startup"), env=stale) == "began"
    other = {"HOLDFAST_SESSION": "2020-01-01_clay_001"}
    assert did(shell, used("t1", command="ls"), env=other) == "noted"
    assert events(shell) == ["session_start", "tool_use"]


def test_a_second_conversation_of_an_agent_stands_beside_the_first(shell: Shell) -> None:
    hook(shell, event("SessionStart", source="startup"))
    assert did(shell, event("SessionStart", session_id="other", source="startup")) == "began"
    assert did(shell, {**used("t1", command="ls"), "session_id": "other"}) == "noted"
    assert did(shell, event("SessionEnd", session_id="other", reason="clear")) == "ended"
    assert did(shell, event("SessionEnd", reason="clear")) == "ended"
    first, second, call, end, last = journal(shell)
    assert second["role"] == "claude-2"
    assert call["session_id"] == end["session_id"] == second["session_id"]
    assert last["session_id"] == first["session_id"]


def test_a_conversation_without_an_end_is_found_crashed_after_its_silence(shell: Shell) -> None:
    hook(shell, event("SessionStart", source="startup"), "--timeout", "1s")
    with Home.open(str(shell.home), clock=_Later()) as home, Agent(home, "rio") as rio:
        assert len(rio.bury()) == 1
    assert journal(shell)[-1]["cause"] == "crashed"
    # What it says afterwards is of another session; its end is none of that.
    assert did(shell, event("SessionEnd", reason="other")) == "nothing"
    assert did(shell, used("t9", command="ls")) == "noted"
    assert events(shell)[-2:] == ["session_start", "tool_use"]


def test_events_keep_a_session_alive_beyond_its_silence(shell: Shell) -> None:
    clock = _Later(0.0)
    place = hooked.Place(silence=600.0)
    with Home.open(str(shell.home), clock=clock) as home, Agent(home, "rio") as rio:
        told = hooked.parse(json.dumps(event("SessionStart", source="startup")).encode())
        assert hooked.hear(home, rio, told, place).did == "began"
        for number in range(10):
            clock.ahead += 400.0
            call = hooked.parse(json.dumps(used(f"t{number}", command="ls")).encode())
            assert hooked.hear(home, rio, call, place).did == "noted"
        clock.ahead += 700.0
        assert len(rio.bury()) == 1
    assert events(shell) == ["session_start", *["tool_use"] * 10, "error", "session_end"]


class _Later:
    """The clock of the machine, put forward."""

    def __init__(self, ahead: float = 3600.0) -> None:
        self._clock, self.ahead = SystemClock(), ahead

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def boottime(self) -> float:
        return self._clock.boottime() + self.ahead

    def boot(self) -> str:
        return self._clock.boot()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_a_stop_is_a_sign_of_life(shell: Shell) -> None:
    hook(shell, event("SessionStart", source="startup"))
    with Home.open(str(shell.home), clock=_Later(30.0)) as home, Agent(home, "rio") as rio:
        told = hooked.parse(json.dumps(event("Stop", stop_hook_active=False)).encode())
        assert [hooked.hear(home, rio, told).did for _ in range(2)] == ["beat", "nothing"]
    assert [entry["event"] for entry in entries_in(shell.home, "rio")] == [
        "task_start",
        "heartbeat",
    ]


def test_many_calls_at_once_are_as_many_lines(shell: Shell) -> None:
    told = [used(f"t{number}", command=f"echo {number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda each: did(shell, each), told)) == ["noted"] * 6
    assert events(shell) == ["session_start", *["tool_use"] * 6]
    assert {line.get("call") for line in journal(shell)[1:]} == {f"t{n}" for n in range(6)}
    assert shown(shell)["tools"]["calls"] == 6
    assert shell("check").code == 0


def test_a_session_that_begins_while_one_looks_for_it_is_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins it right behind each look at the state."""
    look = Agent.state
    told = hooked.parse(json.dumps(used("t1", command="ls")).encode())
    with (
        Home.open(str(shell.home)) as home,
        Agent(home, "rio") as rio,
        Home.open(str(shell.home)) as elsewhere,
        Agent(elsewhere, "rio") as other,
    ):
        begun: list[str] = []

        def state(agent: Agent) -> Any:
            found = json.loads(json.dumps(look(agent)))
            if agent is rio and not begun:
                begun.append("now")
                begun[0] = other.start(Start("ad-hoc", known_as=told.known_as)).id
            return found

        monkeypatch.setattr(Agent, "state", state)
        heard = hooked.hear(home, rio, told)
    assert (heard.did, heard.session) == ("noted", begun[0])
    assert events(shell) == ["session_start", "tool_use"]


def test_one_call_that_many_processes_tell_of_is_one_line(shell: Shell) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: did(shell, used("t1", command="ls")), range(6)))
    assert sorted(found) == ["noted", *["nothing"] * 5]
    assert events(shell) == ["session_start", "tool_use"]


def test_it_is_quick(shell: Shell) -> None:
    """Beside `session beat`, which has a budget of its own."""
    hook(shell, event("SessionStart", source="startup"))

    def seconds(call: Any) -> float:
        began = time.perf_counter()
        assert call().code == 0
        return time.perf_counter() - began

    hooks = [seconds(lambda n=n: hook(shell, used(f"t{n}", command="ls"))) for n in range(9)]
    beats = [seconds(lambda: shell("session", "beat", "--agent", "rio")) for _ in range(9)]
    assert statistics.median(hooks) < max(0.150, 1.3 * statistics.median(beats))


# --- who it is about ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ({"HOLDFAST_AGENT": "Clay"}, "clay"),
        ({"CLAUDE_PROJECT_DIR": "/srv/leo"}, "leo"),
        ({}, "nowhere"),
    ],
)
def test_the_agent_is_the_one_that_is_named_or_the_folder(
    shell: Shell, env: dict[str, str], agent: str
) -> None:
    ran = shell(
        "hook",
        "claude-code",
        "--json",
        env=env,
        said=json.dumps(event("SessionStart", source="startup")).encode(),
    )
    assert ran.json()["data"]["agent"] == agent
    assert [line["event"] for line in journal(shell, agent)] == ["session_start"]


def test_a_folder_that_is_no_name_becomes_one(shell: Shell) -> None:
    told = json.dumps({**event("SessionStart"), "cwd": "/srv/../My Project!;rm"}).encode()
    ran = shell("hook", "claude-code", "--json", said=told)
    assert ran.json()["data"]["agent"].startswith("my-project-rm-")


def test_an_agent_that_changes_its_folder_stays_who_it_is(shell: Shell, tmp_path: Path) -> None:
    project = tmp_path / "leo"
    project.mkdir()
    env = {"CLAUDE_PROJECT_DIR": str(project)}
    for told in (event("SessionStart"), {**used("t1", command="ls"), "cwd": "/srv/other"}):
        shell("hook", "claude-code", env=env, said=json.dumps(told).encode())
    assert [line["event"] for line in journal(shell, "leo")] == ["session_start", "tool_use"]


# --- what must not do harm ------------------------------------------------------------------

BAD = {
    "empty": b"",
    "no JSON": b"{oops",
    "no UTF-8": b"\xff\xfe{}",
    "a list": b"[]",
    "a number": b"17",
    "no session": b'{"hook_event_name": "Stop"}',
    "no name": b'{"session_id": "x"}',
    "a session that is a list": b'{"hook_event_name": "Stop", "session_id": ["x"]}',
    "a name that is null": b'{"hook_event_name": null, "session_id": "x"}',
    "twice the same key": b'{"session_id":"x","session_id":"y","hook_event_name":"Stop"}',
    "too deep": b'{"session_id":"x","hook_event_name":' + b"[" * 2000 + b"]" * 2000 + b"}",
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_event_harms_nobody(shell: Shell, what: str) -> None:
    ran = hook(shell, BAD[what])
    assert (ran.code, ran.out) == (0, "")
    assert "not kept" in ran.err
    assert journal(shell) == []
    assert hook(shell, BAD[what], "--strict").code == 2


def test_fields_of_wrong_types_are_taken_for_nothing(shell: Shell) -> None:
    odd: list[Any] = [None, 7, True, [], {"a": [{}]}, "x" * 10_000]
    for value in odd:
        told = event(
            "PostToolUse",
            tool_name=value,
            tool_input=value,
            tool_response=value,
            tool_use_id=value,
            transcript_path=value,
            cwd=value,
        )
        assert hook(shell, told).code == 0
    for name in ("SessionStart", "Stop", "SessionEnd"):
        told = event(name, source=7, reason=[], transcript_path={}, model=1.5)
        assert hook(shell, told).code == 0
    assert events(shell)[-1] == "session_end"
    assert max(map(len, (shell.home / "state/rio/journal.jsonl").read_bytes().splitlines())) < 2000
    assert shell("check").code == 0


def test_an_event_of_fifty_megabytes_is_one_short_line(shell: Shell) -> None:
    told = event(
        "PostToolUse",
        tool_name="Write",
        tool_input={"file_path": "/p/big", "content": "x" * (50 << 20)},
        tool_use_id="t1",
    )
    assert did(shell, told) == "noted"
    assert sum(file.stat().st_size for file in shell.home.rglob("*") if file.is_file()) < 100_000


def test_an_event_beyond_all_measure_is_taken_off_the_pipe_and_refused(shell: Shell) -> None:
    ran = hook(shell, b'{"a": "' + b"x" * (70 << 20) + b'"}')
    assert ran.code == 0
    assert "not kept" in ran.err


def test_a_home_that_cannot_be_used_does_not_stop_the_agent(shell: Shell) -> None:
    (shell.home / "holdfast.toml").write_text("format = 99\n")
    ran = hook(shell, used("t1", command="ls"))
    assert (ran.code, ran.out) == (0, "")
    assert "not kept" in ran.err
    assert hook(shell, used("t1", command="ls"), "--strict").code == 3


def test_a_hook_that_is_written_wrongly_does_not_stop_the_agent(shell: Shell) -> None:
    """Exit code 2 would forbid Claude Code to take a prompt, or to stop."""
    for words in (("--agnet", "rio"), ("--agent", "../rio"), ("--timeout", "soon"), ("extra",)):
        ran = shell("hook", "claude-code", *words, said=json.dumps(event("Stop")).encode())
        assert (ran.code, ran.out) == (0, ""), words
        assert ran.err, words
        assert shell("hook", "claude-code", *words, "--strict", said=b"{}").code == 2


def test_what_hooks_leave_is_what_the_contracts_say(shell: Shell) -> None:
    hook(shell, event("SessionStart", source="startup", model="opus"))
    hook(shell, used("t1", "Write", file_path="/p/a.md"))
    hook(shell, event("PostToolUseFailure", tool_name="Read", error="none"))
    hook(shell, event("SessionEnd", reason="other"))
    found = shell("--json", "validate", str(shell.home))
    assert found.code == 0, found
    assert found.json()["rows"] == []


def test_a_hook_before_a_tool_never_says_a_word(shell: Shell) -> None:
    told = event("PreToolUse", tool_name="Bash", tool_input={"command": "rm -rf /"})
    ran = hook(shell, told)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert journal(shell) == []


def test_events_that_nobody_knew_yet_are_signs_of_life(shell: Shell) -> None:
    assert hook(shell, event("TeammateIdle")).code == 0
    assert events(shell) == ["session_start"]


def test_secrets_in_commands_are_not_kept(shell: Shell) -> None:
    secrets = {
        "curl -H 'Authorization: Bearer abcdef0123456789' x": "abcdef0123456789",
        "export OPENAI_API_KEY=sk-REDACTED": "sk-REDACTED",
        "mysql --password hunter22": "hunter22",
        "git clone https://bob:s3cr3tpw@host/x": "s3cr3tpw",
        "echo ghp_0123456789abcdefghijABCDEFGHIJ": "ghp_0123456789",
    }
    for number, command in enumerate(secrets):
        hook(shell, used(f"t{number}", command=command))
    hook(shell, used("t9", "mcp__db__query", api_key="topsecretvalue", table="users"))
    text = (shell.home / "state/rio/journal.jsonl").read_text()
    assert [secret for secret in (*secrets.values(), "topsecretvalue") if secret in text] == []
    assert "table=users" in text


# --- the transcript -------------------------------------------------------------------------


def spoken(name: str, tokens: int, **more: Any) -> str:
    usage = {"input_tokens": tokens, "output_tokens": 1}
    message = {"id": name, "model": "opus", "usage": usage}
    return json.dumps({"type": "assistant", "message": message, **more})


def ended_with(shell: Shell, transcript: Path) -> dict[str, Any]:
    hook(shell, event("SessionStart", source="startup"))
    told = event("SessionEnd", reason="other", transcript_path=str(transcript))
    assert did(shell, told) == "ended"
    return journal(shell)[-1]


def test_tokens_are_those_of_the_transcript_each_message_once(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    lines = [
        spoken("old", 5_000, timestamp="2020-01-01T00:00:00Z"),
        spoken("a", 10),
        spoken("a", 10),
        '{"type":"user","message":{"content":"\\"usage\\""}}',
        "{torn",
        spoken("b", 20, timestamp="2099-01-01T00:00:00.000Z"),
    ]
    file.write_text("\n".join(lines))
    end = ended_with(shell, file)
    assert end["tokens_used"] == 11 + 21
    assert "cost_usd" not in end
    assert end["model"] == "opus"
    assert shown(shell)["tokens_used"] == 32
    assert "cost unknown" in end["summary"]


def test_a_price_counts_only_when_every_message_has_one(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join([spoken("a", 1, costUSD=0.25), spoken("b", 1, costUSD=0.5)]))
    assert ended_with(shell, file)["cost_usd"] == 0.75


def test_a_transcript_that_is_something_else_is_not_read(shell: Shell, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(spoken("a", 99) + "\ntop secret\n")
    fifo, link, folder = tmp_path / "f.jsonl", tmp_path / "l.jsonl", tmp_path / "d.jsonl"
    os.mkfifo(fifo)
    link.symlink_to(secret)
    folder.mkdir()
    for number, path in enumerate([Path("/etc/shadow"), secret, fifo, link, folder]):
        hook(shell, event("SessionStart", session_id=f"s{number}"))
        told = event("SessionEnd", session_id=f"s{number}", transcript_path=str(path))
        assert did(shell, told) == "ended"
        end = journal(shell)[-1]
        assert "tokens_used" not in end
        assert "tokens unknown" in end["summary"]
    assert b"top secret" not in b"".join(
        file.read_bytes() for file in shell.home.rglob("*") if file.is_file()
    )


# --- properties -----------------------------------------------------------------------------

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(
    ["SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd", "PreCompact", "New"]
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            _names,
            st.sampled_from(["a", "b"]),
            st.dictionaries(
                st.sampled_from(
                    ["tool_name", "tool_input", "tool_use_id", "source", "reason", "error", "cwd"]
                ),
                _json,
            ),
        ),
        max_size=12,
    )
)
def test_whatever_comes_sessions_have_one_start_and_at_most_one_end(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, str, dict[str, Any]]]
) -> None:
    place = tmp_path_factory.mktemp("home")
    with Home.open(str(place / "home"), create=True) as home, Agent(home, "rio") as rio:
        for name, session, fields in told:
            each = {**fields, "hook_event_name": name, "session_id": session}
            try:
                parsed = hooked.parse(json.dumps(each).encode())
            except BadValue:
                continue
            hooked.hear(home, rio, parsed)
        lines = [line.record for line in rio.lines() if "event" in line.record]
        began = [line["session_id"] for line in lines if line["event"] == "session_start"]
        ended = [line["session_id"] for line in lines if line["event"] == "session_end"]
        assert len(set(began)) == len(began)
        assert len(set(ended)) == len(ended)
        assert set(ended) <= set(began)
        assert all(line["session_id"] in began for line in lines)
        lifetime = rio.metrics()["lifetime"]
        assert lifetime["sessions_total"] == len(ended)


@given(st.text(max_size=400), st.integers(2, 400))
def test_what_is_told_of_an_input_is_one_short_line(text: str, most: int) -> None:
    found = tools.told(text, most)
    assert len(found) <= most
    assert len(found.splitlines()) <= 1


def test_a_pipe_that_never_ends_does_not_hold_up_an_agent(shell: Shell) -> None:
    silent = shell.start("hook", "claude-code", "--agent", "rio")
    open_ended = shell.start("hook", "claude-code", "--agent", "rio")
    with ended(silent), ended(open_ended):
        assert open_ended.stdin is not None
        open_ended.stdin.write(json.dumps(used("t1", command="ls")).encode())
        open_ended.stdin.flush()
        assert (silent.wait(PATIENCE), open_ended.wait(PATIENCE)) == (0, 0)
        assert silent.stderr is not None
        assert b"did not end" in silent.stderr.read()
    assert events(shell) == ["session_start", "tool_use"]


def test_a_conversation_is_told_of_the_session_before_not_of_its_own(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio", "--type", "research")
    said = ("--outcome", "completed", "--handoff", "three sources are left")
    assert shell("session", "end", "--agent", "rio", *said).code == 0
    ran = shell("session", "start", "--agent", "rio", "--type", "research", "--json")
    within = {"HOLDFAST_SESSION": ran.json()["target"]}
    for source in ("startup", "compact"):
        told = hook(shell, event("SessionStart", source=source), env=within).out
        assert "_rio_001: completed" in told
        assert "Handoff: three sources are left" in told
        assert "running" not in told


def test_of_more_files_than_are_kept_nobody_says_how_many(shell: Shell) -> None:
    counts = None
    for number in range(tools.MOST_FILES + 30):
        counts = tools.counted(counts, {"tool": "Write", "wrote": f"/f{number}"})
    assert tools.files_written(tools.shown(counts)) is None
    assert tools.files_written(tools.shown(None)) == 0
    many = {"calls": 101, "failed": 0, "wrote": ["a"] * tools.MOST_FILES}
    assert "100 or more files written" in hooked._summary("logout", many, {}, "none")
