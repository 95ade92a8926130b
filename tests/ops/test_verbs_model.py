"""`model test` tells what a model said, what that cost and how long it took."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing import Turner
from tests.ledger.shell import Verbs


def asked(tmp_path: Path, replies: str, tries: int = 1) -> list[str]:
    script = tmp_path / "replies.yaml"
    script.write_text(replies)
    verbs = Verbs(str(tmp_path / "home"), Turner())
    shown = verbs("model test", model=f"scripted:{script}", tries=tries)
    return str(shown.text).splitlines()


def test_what_was_told_is_shown(tmp_path: Path) -> None:
    said, blank, figures = asked(
        tmp_path,
        "replies: [{reply: hello, usage: {input_tokens: 7, output_tokens: 2}, cost_usd: 0.25}]",
    )
    assert (said, blank) == ("hello", "")
    assert "7 tokens in, 2 out, 0.25 USD, " in figures
    assert figures.endswith(" s")


def test_what_is_not_known_is_not_called_nothing(tmp_path: Path) -> None:
    verbs = Verbs(str(tmp_path / "home"), Turner())
    *_, figures = verbs("model test", model="command:echo hello").text.splitlines()
    assert "tokens unknown, cost unknown, " in figures


def test_tries_that_failed_are_counted(tmp_path: Path) -> None:
    *_, figures = asked(tmp_path, "replies: [{error: unavailable, message: '503'}, hello]", tries=2)
    assert figures.endswith(", 2 tries")
