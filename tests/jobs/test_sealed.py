"""Sensitive jobs: what was said is in no file, and open to whoever has the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from holdfast.contracts.job_history import HISTORY
from holdfast.contracts.job_lines import LOG, MANIFEST
from holdfast.jobs.history import prompt_of_call
from holdfast.jobs.job import Job
from holdfast.store.home import Home
from tests.jobs.desk import DONE, Desk

# Words that nothing but a text of the job has.
PROMPT, OBJECTIVE, INSTRUCTION = "quagga-prompt", "quagga-objective", "quagga-instruction"
SUMMARY, GUIDANCE, OUTPUT = "quagga-summary", "quagga-guidance", "quagga-output"
LIVE = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"


def reply(action: str, words: str = SUMMARY) -> dict[str, Any]:
    return {"action": action, "evidence_files": [], "summary_for_supervisor": f"{words}."}


@pytest.fixture
def keys(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = desk.cwd / "keys.json"
    monkeypatch.setenv("HOLDFAST_KEYS", str(path))
    assert desk("key", "new").code == 0
    return path


def sensitive(desk: Desk, *replies: object, **more: Any) -> None:
    gate = {"run": f"echo {OUTPUT[:6]}{OUTPUT[6:]}"}
    spec = desk.spec(
        prompt=PROMPT,
        objective=OBJECTIVE,
        sensitive=True,
        phases=[{"name": "work", "instructions": INSTRUCTION, "gates": [gate], **more}],
        models={"worker": desk.script(*replies)},
    )
    desk.ok("job", "new", spec, "--id", "demo")


def everything(home: Path) -> bytes:
    """Every byte of the home, also of what is packed."""
    found = b""
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += zstandard.decompress(data, 1 << 26) if path.name.endswith("l.zst") else data
    return found


def clear(home: Path) -> list[str]:
    said = everything(home)
    words = (PROMPT, OBJECTIVE, INSTRUCTION, SUMMARY, GUIDANCE)
    return [word for word in words if word.encode() in said]


def test_no_file_holds_what_was_said(desk: Desk, keys: Path) -> None:
    sensitive(desk, reply("STUCK"), {"action": "FLY", "words": SUMMARY}, reply("COMPLETED"))
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "continue", "--guidance", GUIDANCE)
    desk.ran(code=1)
    assert clear(desk.home) == []
    desk.ok("job", "steward", "demo", "continue", "--guidance", GUIDANCE)
    assert desk.ran()["status"] == "SUCCESS"
    assert clear(desk.home) == []
    # What the gate printed is the command's name too, which everybody may read.
    assert not any(
        OUTPUT in json.dumps(each.get("gate", {}).get("runs", [{}])[0].get("output", ""))
        for each in desk.lines(event="judged")
    )
    desk.ok("job", "archive", "demo")
    assert clear(desk.home) == []
    assert desk("check").code == 0
    log = [
        json.loads(line)
        for line in zstandard.decompress(
            (desk.home / "jobs/demo/history.jsonl.zst").read_bytes(), 1 << 26
        ).splitlines()
    ]
    assert all("sealed" in each for each in log if "_log" not in each)
    assert not [f for each in log for f in LOG.read(each).findings if f.level == "error"]


def test_views_show_that_something_is_sealed_and_stay_sound(desk: Desk, keys: Path) -> None:
    sensitive(desk, reply("COMPLETED"))
    desk.ran()
    manifest, history = desk.manifest(), desk.document("jobHistory.json")
    assert manifest["prompt"] == manifest["objective"] == "[sealed]"
    assert manifest["phases"][0]["worker_instructions"] == "[sealed]"
    assert manifest["history"][-1]["summary"] == "[sealed]"
    call = history["interactions"][0]
    assert call["response"]["raw_response"] == "[sealed]"
    assert call["response"]["action"] == "COMPLETED" and "[sealed]" in call["request"]["prompt"]
    assert not [each for each in MANIFEST.read(manifest).findings if each.level == "error"]
    assert not [each for each in HISTORY.read(history).findings if each.level == "error"]
    assert desk.show()["spec"]["prompt"] == "[sealed]"
    assert "[sealed]" in desk("job", "list").out


def test_who_has_the_key_reads_everything(desk: Desk, keys: Path) -> None:
    sensitive(desk, reply("STUCK"), reply("COMPLETED"))
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "continue", "--guidance", GUIDANCE)
    desk.ran()
    told = desk.ok("job", "show", "demo", "--decrypt")["data"]
    assert told["spec"]["prompt"] == PROMPT and told["former"]["summary"] == f"{SUMMARY}."
    words = ("job", "history", "demo", "--format", "json")
    assert PROMPT not in json.dumps(desk.ok(*words))
    found = desk.ok(*words, "--decrypt")["data"]["interactions"]
    assert all(word in found[1]["request"]["prompt"] for word in (PROMPT, INSTRUCTION, GUIDANCE))
    assert json.loads(found[1]["response"]["raw_response"]) == reply("COMPLETED")
    assert desk.ok("job", "replay", "demo")["data"]["status"] == "SUCCESS"
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.reveal()
        assert SUMMARY in prompt_of_call(job, 1)


@pytest.mark.parametrize("missing", ["none", "another"])
def test_without_its_key_a_job_neither_runs_nor_opens(
    desk: Desk, keys: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensitive(desk, reply("COMPLETED"))
    monkeypatch.setenv("HOLDFAST_KEYS", str(desk.cwd / "other.json"))
    if missing == "another":
        assert desk("key", "new").code == 0
    for words in (
        ("job", "run", "demo"),
        ("job", "show", "demo", "--decrypt"),
        ("job", "history", "demo", "--decrypt"),
        ("job", "replay", "demo"),
        ("job", "cancel", "demo", "--reason", "no key"),
    ):
        ran = desk(*words, "--json")
        assert ran.code != 0 and ran.error()["code"] == "no_key", (words, ran)
    assert desk.show()["status"] == "DRAFT"


def test_what_was_only_looked_at_before_is_not_written_blank(desk: Desk, keys: Path) -> None:
    sensitive(desk, reply("COMPLETED"))
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        assert job.spec.prompt == "[sealed]"
        job.decide(lambda state: [{"event": "set", "spec": state["spec"]}])
    assert desk.ok("job", "show", "demo", "--decrypt")["data"]["spec"]["prompt"] == PROMPT


def test_a_decision_about_a_sensitive_job_is_bound_to_what_was_shown_without_its_key(
    desk: Desk, keys: Path
) -> None:
    sensitive(desk, reply("STUCK"), reply("COMPLETED"), reply("COMPLETED"), approval=True)
    desk.ran(code=1)
    for decision in (("continue",), ("reject", "--guidance", GUIDANCE), ("approve",)):
        shown = desk.show()["shown"]
        assert desk.ok("job", "show", "demo", "--decrypt")["data"]["shown"] == shown
        assert shown in desk("job", "show", "demo").out
        words = ("job", "steward", "demo", *decision, "--shown")
        desk.refused(*words, "deadbeefdeadbeef", says="has changed since")
        desk.ok(*words, shown)
        desk("job", "run", "demo")
        desk.refused(*words, shown)
    assert desk.status() == "SUCCESS"


def test_without_any_key_no_sensitive_job_is_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEYS", str(desk.cwd / "nothing.json"))
    words = ("--prompt", PROMPT, "--worker", "scripted:echo", "--sensitive", "--id", "demo")
    ran = desk("job", "new", *words, "--json")
    assert ran.code != 0 and ran.error()["code"] == "no_key"
    assert desk.ok("job", "list")["rows"] == [] and clear(desk.home) == []


def test_a_part_is_told_once_and_its_name_is_no_hash_that_can_be_tried(
    desk: Desk, keys: Path
) -> None:
    sensitive(desk, *[reply("RETRY")] * 3, reply("COMPLETED"))
    desk.ran()
    parts = [each["part"] for each in desk.lines(event="part")]
    assert len(parts) == len(set(parts))
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        job.reveal()
        texts = {
            line.record["part"]: line.record["text"]
            for line in job.lines()
            if line.record.get("event") == "part"
        }
        assert all(job.seals.ring.digest(text) == name for name, text in texts.items())
    assert any(PROMPT in text for text in texts.values())


def test_a_text_that_only_looks_sealed_is_a_text(desk: Desk, keys: Path) -> None:
    desk.new("--worker", desk.script(reply("COMPLETED", "[sealed v1 01234567 AAAAAAAA]")))
    desk.ran()
    assert "[sealed v1 01234567 AAAAAAAA]" in desk.show()["former"]["summary"]


def test_going_on_in_another_job_seals_there_too(desk: Desk, keys: Path) -> None:
    sensitive(desk, reply("RETRY"), reply("COMPLETED"))
    desk.ran()
    again = desk.ok("job", "replay", "demo", "--from", "1", "--model", "scripted:echo")["data"]
    assert again["now"]["status"] == "SUCCESS" and clear(desk.home) == []


# --- secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_secret_in_a_reply_is_masked_and_told_once(
    desk: Desk, keys: Path, sealed: bool, acts: bool
) -> None:
    answer = {**reply("COMPLETED", "It is done."), "notes": f"The key is {LIVE}"}
    says = f"print({json.dumps(answer)!r})"
    worker = desk.program(says) if acts else desk.script(answer)
    desk.new("--worker", worker, *(["--sensitive"] if sealed else []))
    desk.ran()
    assert LIVE.encode() not in everything(desk.home)
    (entry,) = desk.ok("audit", "list", "--kind", "redaction")["rows"]
    assert entry["job_id"] == "demo" and "reply of call 0" in entry["detail"]
    told = desk.ok("job", "history", "demo", "--format", "json", "--decrypt")["data"]
    assert "[SECRET:" in told["interactions"][0]["response"]["raw_response"]


def test_a_run_prints_nothing_of_what_was_said(desk: Desk, keys: Path) -> None:
    sensitive(desk, reply("STUCK"), {"action": "FLY", "words": SUMMARY}, reply("COMPLETED"))
    printed = ""
    for words in (
        ("job", "run", "demo"),
        ("job", "steward", "demo", "continue", "--guidance", GUIDANCE, "--json"),
        ("job", "step", "demo"),
        ("job", "steward", "demo", "continue", "--json"),
        ("job", "run", "demo", "--json"),
    ):
        ran = desk(*words)
        printed += ran.out + ran.err
    assert "demo is SUCCESS" in printed or '"SUCCESS"' in printed
    assert "[sealed]" in printed
    words = (PROMPT, OBJECTIVE, INSTRUCTION, SUMMARY, GUIDANCE)
    assert [word for word in words if word in printed] == []
    shown = desk("job", "history", "demo", "--decrypt", "--json")
    assert SUMMARY in shown.out, "who asks for it with the key sees it"


def test_a_warning_about_a_sensitive_answer_does_not_quote_it(desk: Desk, keys: Path) -> None:
    odd = {**DONE, "evidence_files": ["the-plan.md"]}
    desk.new("--worker", desk.script(odd), "--sensitive")
    ran = desk("job", "run", "demo")
    assert "warning: [sealed]" in ran.out
    assert "the-plan" not in ran.out + ran.err


@pytest.mark.parametrize("another", [True, False])
def test_a_job_whose_key_is_lost_can_be_ended(desk: Desk, keys: Path, another: bool) -> None:
    sensitive(desk, reply("STUCK"))
    desk.ran(code=1)
    keys.unlink()
    if another:
        assert desk("key", "new").code == 0
    assert desk("job", "cancel", "demo", "--reason", "no key").code == 3
    assert desk.ok("job", "cancel", "demo")["applied"] is True
    assert desk.status() == "CANCELED"
    assert desk.ok("job", "list", "--waiting")["rows"] == []
    assert clear(desk.home) == []
