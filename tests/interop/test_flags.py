"""`import` of flags that agents left for each other in a shared folder: messages, each once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import SystemClock
from holdfast.interop.copies import Foreign
from holdfast.interop.flags import Flag, flags_in
from tests.ledger.shell import Shell, Verbs, on_its_own
from tests.ops.foreign import put, snapshot, teleo_agent
from tests.ops.test_verbs_import import is_killed

FLAG = """\
## Cross-Domain Flag: Theseus → Rio
**Date**: 2026-03-29
**What I found**: agents trade there
**What it means for your domain**: look at who decides
**Recommended action**: review
**Relevant files**: domains/one.md
**Priority**: high
"""
LATER = """\
## Cross-Domain Flag: leo -> rio
**Date**: 2026-03-30T10:00:00+02:00
**What I found**: it connects to the other one
**Priority**: low
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "clay", "--timezone", "UTC").code == 0
    return made


def workspace(tree: Path) -> Path:
    put(tree / "collective/flag-leo-allocation_claims.md", LATER)
    put(tree / "collective/flag-theseus-agent-participation.md", FLAG)
    put(tree / "collective/synthesis-queue.md", "### 2026-03-29 — leo\n**Pattern**: x → y\n")
    put(tree / "rio-leo/handoff-fees.md", "## Handoff: rio → leo\n")
    put(tree / "drafts/flagship.md", "# A draft\n")
    return tree


def inbox(shell: Shell, agent: str = "rio") -> list[dict[str, Any]]:
    return shell("inbox", "list", "--agent", agent, "--json").rows()


def took(shell: Shell, agent: str = "rio") -> list[dict[str, Any]]:
    """What is handed out, one after the other."""
    ran = shell("inbox", "take", "--agent", agent, "--limit", "50", "--json")
    return ran.rows()


def files_of(shell: Shell) -> dict[str, bytes]:
    found = [each for each in shell.home.rglob("*") if each.is_file() and each.name[0] != "."]
    return {str(each): each.read_bytes() for each in found}


def test_a_flag_becomes_a_message_of_its_sender_with_its_subject_and_text(shell: Shell) -> None:
    tree = workspace(shell.cwd / "workspace")
    before = snapshot(tree)
    done = shell("import", str(tree), "--json")
    assert done.code == 0, done.err
    assert [(row["agent"], row["part"], row["state"]) for row in done.rows()] == [
        ("rio", "flags", "taken"),
        ("rio", "flags", "taken"),
    ]
    assert done.json()["counts"]["layout"] == "teleo"
    assert snapshot(tree) == before

    first, second = inbox(shell)
    shown = shell("inbox", "show", first["id"], "--agent", "rio", "--json").json()["data"]
    assert (shown["from"], shown["to"], shown["type"]) == ("theseus", "rio", "flag")
    assert (shown["priority"], shown["subject"]) == ("high", "agent participation")
    assert (shown["body"], shown["created_at"]) == (FLAG.strip(), "2026-03-29T00:00:00Z")
    assert shown["source_ref"] == "collective/flag-theseus-agent-participation.md"
    assert (second["from"], second["subject"]) == ("leo", "allocation claims")
    assert (second["priority"], second["created_at"]) == ("normal", "2026-03-30T08:00:00Z")
    copies = {each.read_bytes() for each in (shell.home / "state/rio/imported").glob("f*")}
    assert copies == {FLAG.encode(), LATER.encode()}
    assert shell("check").code == 0


def test_a_flag_is_delivered_once_whatever_became_of_the_message(shell: Shell) -> None:
    tree = workspace(shell.cwd / "workspace")
    shell("import", str(tree))
    before = files_of(shell)
    again = shell("import", str(tree), "--json")
    assert (again.code, {row["state"] for row in again.rows()}) == (0, {"known"})
    assert files_of(shell) == before

    ids = [row["id"] for row in took(shell)]
    shell("import", str(tree))
    assert [(row["id"], row["state"]) for row in inbox(shell)] == [
        (id, "claimed") for id in sorted(ids)
    ]
    for id in ids:
        assert shell("inbox", "ack", id, "--agent", "rio").code == 0
    shell("import", str(tree))
    assert inbox(shell) == []
    assert len(shell("inbox", "list", "--agent", "rio", "--done", "--json").rows()) == 2
    notes = (shell.home / "state/rio/memory.md").read_text("utf-8")
    assert 'theseus (2026-03-29): "agent participation' in notes

    other = FLAG.replace("agents trade there", "nobody trades there")
    put(tree / "collective/flag-theseus-agent-participation.md", other)
    assert shell("import", str(tree), "--json").json()["counts"]["taken"] == 1
    (row,) = inbox(shell)
    assert row["subject"] == "agent participation"


def test_a_dry_run_tells_what_would_be_delivered_and_delivers_nothing(shell: Shell) -> None:
    tree = workspace(shell.cwd / "workspace")
    before = files_of(shell)
    tried = shell("import", str(tree), "--dry-run", "--json")
    assert files_of(shell) == before
    done = shell("import", str(tree), "--json")
    assert tried.rows() == done.rows()
    assert "from theseus: agent participation" in {row["detail"] for row in done.rows()}


def test_flags_that_say_nothing_to_anybody_are_told_and_left(shell: Shell) -> None:
    tree = workspace(shell.cwd / "workspace")
    folder = tree / "collective"
    junk = {
        "flag-a.md": b"",
        "flag-b.md": b"\xff\xfe",
        "flag-c.md": b"# Notes\nnothing for anybody\n",
        "flag-d.md": b"## Flag: leo \xe2\x86\x92 ../../etc\n",
        "flag-e.md": b"## Flag: leo \xe2\x86\x92 everyone\n",
        "flag-f.md": b"## Flag: leo \xe2\x86\x92 rio\n" + b"x" * (300 << 10),
    }
    for name, data in junk.items():
        put(folder / name, data)
    put(folder / "flag-g.md", "## Flag: leo → astra\nfor one who is not here\n")
    (folder / "flag-h.md").symlink_to("/etc/passwd")
    os.mkfifo(folder / "flag-i.md")
    before = snapshot(tree)
    done = shell("import", str(tree), "--json")
    assert snapshot(tree) == before
    assert done.code == 1
    told = {row["file"]: row for row in done.rows() if row["state"] == "skipped"}
    assert set(told) == {f"collective/flag-{name}.md" for name in "abcdefghi"}
    assert all(row["detail"] for row in told.values())
    assert "holdfast init astra" in told["collective/flag-g.md"]["detail"]
    assert len(inbox(shell)) == 2
    assert [row["agent"] for row in shell("agent", "list", "--json").rows()] == ["clay", "rio"]

    shell("init", "astra")
    assert shell("import", str(tree), "--json").json()["counts"]["taken"] == 1
    assert [row["from"] for row in inbox(shell, "astra")] == ["leo"]


def test_a_file_with_several_flags_to_several_agents_reaches_each_of_them(shell: Shell) -> None:
    text = "# Flags of this week\n\n## Flag: leo → Rio (finance), @clay\n**Topic**: one\n\n"
    text += "### How: fees → prices\nThe body goes on.\n\n## Flag: leo → clay — two\n- last\n"
    put(shell.cwd / "w/collective/flag-leo-week.md", text)
    assert shell("import", str(shell.cwd / "w")).code == 0
    (to_rio,) = inbox(shell)
    assert to_rio["subject"] == "one"
    body = shell("inbox", "show", to_rio["id"], "--agent", "rio", "--json").json()["data"]["body"]
    assert body.endswith("The body goes on.")
    assert sorted(row["subject"] for row in inbox(shell, "clay")) == ["one", "two"]
    # Neither says when it was written: the file does.
    written = {row["created_at"][:4] for row in inbox(shell, "clay")}
    assert written != {"1970"}


@pytest.mark.parametrize("part", ["", "workspace", "workspace/collective", "one", "renamed"])
def test_flags_are_found_wherever_their_folder_lies(shell: Shell, part: str) -> None:
    top = shell.cwd / "pentagon"
    folder = workspace(top / "workspace") / "collective"
    place = top / part
    if part == "one":
        place = folder / "flag-leo-allocation_claims.md"
    elif part == "renamed":
        place = folder.rename(top / "old-flags")
    done = shell("import", str(place), "--json")
    assert done.code == 0, done.err
    assert [row["state"] for row in done.rows()] == ["taken"] * (1 if part == "one" else 2)
    assert len(inbox(shell)) == len(done.rows())


def test_flags_reach_agents_that_the_same_tree_brings(shell: Shell) -> None:
    tree = shell.cwd / "agent-state"
    teleo_agent(tree / "astra", "astra")
    put(tree / "collective/flag-leo-space.md", "## Flag: leo → astra\nlook up\n")
    tried = shell("import", str(tree), "--dry-run", "--json")
    done = shell("import", str(tree), "--json")
    assert [row["state"] for row in tried.rows()] == [row["state"] for row in done.rows()]
    assert done.code == 0
    assert {row["from"] for row in inbox(shell, "astra")} == {"theseus", "leo"}


@pytest.mark.parametrize(
    "point", ["mailbox.linked", "document.renamed", "log.append.unlocked", "log.append.synced"]
)
def test_an_import_that_was_killed_is_completed_and_repeats_nothing(
    shell: Shell, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, shell.user)
    tree = workspace(shell.cwd / "workspace")
    verbs = Verbs(str(shell.home), SystemClock())
    assert is_killed(lambda: verbs("import", src=str(tree)), point, 1)
    assert shell("import", str(tree)).code == 0
    assert sorted(row["from"] for row in inbox(shell)) == ["leo", "theseus"]
    again = shell("import", str(tree), "--json")
    assert {row["state"] for row in again.rows()} == {"known"}
    assert len(inbox(shell)) == 2


# --- the text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "sender", "to", "subject"),
    [
        ("flag-leo-x-y.md", "## Flag: theseus → rio\n", "theseus", "rio", "x y"),
        ("flag-leo-x.md", "**To**: Rio\n**Subject**: who pays\n", "leo", "rio", "who pays"),
        ("flag-leo.md", "**From:** Vida\n**To:** rio\nhi", "vida", "rio", ""),
        ("flag-x.md", "\ufeff# Flag from **Leo** ⇒ `rio`: fees\n", "leo", "rio", "fees"),
        ("flag-leo-x", "## leo => rio\n", "leo", "rio", "x"),
    ],
)
def test_flags_are_read_as_people_write_them(
    path: str, text: str, sender: str, to: str, subject: str
) -> None:
    (flag,) = flags_in(Foreign(path, text.encode()))
    assert (flag.sender, flag.to) == (sender, to)
    assert flag.subject == subject or not subject
    assert flag.body == text.lstrip("\ufeff").strip()


def test_the_message_of_a_flag_is_the_same_whenever_it_is_made() -> None:
    (flag,) = flags_in(Foreign("flag-leo-x.md", LATER.encode()))
    assert (
        flag.message("a/flag-leo-x.md", "2026-01-01T00:00:00Z")[0]
        == (flag.message("b/flag-leo-x.md", "2026-02-02T00:00:00Z")[0])
    )
    assert (
        flag._replace(body="other").message("flag-leo-x.md", "")[0]
        != (flag.message("flag-leo-x.md", "")[0])
    )


@given(st.binary(max_size=200), st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_a_flag_with_names_that_agents_can_have_or_none(
    data: bytes, before: str, behind: str
) -> None:
    heading = f"## Flag: {before} → {behind}\n".encode("utf-8", "surrogatepass")
    for text in (data, heading + data):
        try:
            found = flags_in(Foreign("collective/flag-leo-x.md", text))
        except ValueError as why:
            assert str(why)
            continue
        for flag in found:
            assert isinstance(flag, Flag)
            id, record = flag.message("collective/flag-leo-x.md", "2026-01-01T00:00:00Z")
            assert json.dumps(record)
            assert "/" not in id + flag.to + flag.sender
