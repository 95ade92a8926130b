"""Of no secret half is shown, wherever a text is cut."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidOutput, ModelError
from holdfast.mask.shown import beginning, end
from holdfast.models.command import Command
from holdfast.models.protocol import Message, Request
from holdfast.models.scripted import Scripted
from tests.models.programs import Make

TOKEN = "ghp_uyldbZBHcioeSNf6KCeNPKsqEl7VMkpcqiDV"
CUTS = [10, 30, 60, 200]


def pieces_of(token: str, text: str) -> list[str]:
    parts = [token[at : at + 8] for at in range(4, len(token) - 8)]
    return [part for part in parts if part in text]


@pytest.mark.parametrize("before", [980, 990, 1000, 200_000])
@pytest.mark.parametrize("cut", CUTS)
def test_a_text_is_cut_without_half_a_secret(before: int, cut: int) -> None:
    words = ("some words " * before)[:before]
    assert not pieces_of(TOKEN, beginning(f"{words} {TOKEN} {words}", before + cut % 40))
    assert not pieces_of(TOKEN, end(f"{words} {TOKEN} {words}", before + cut % 40))
    assert end(words, cut) == words[-cut:]


@pytest.mark.parametrize("cut", CUTS)
def test_the_end_of_what_a_program_complained_has_no_half_a_secret(make: Make, cut: int) -> None:
    program = make(f"""
        import sys
        print({TOKEN!r}, ("zzz " * 300)[:{1000 - cut % 40}], file=sys.stderr)
        sys.exit(1)
    """)
    with pytest.raises(ModelError) as caught:
        Command([program]).ask(Request((Message("user", "?"),)))
    assert not pieces_of(TOKEN, str(caught.value))


@pytest.mark.parametrize("cut", CUTS)
def test_what_does_not_meet_a_schema_is_told_without_half_a_secret(cut: int) -> None:
    said = ("some words " * 20)[: 190 - cut % 40]
    wanted = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with pytest.raises(InvalidOutput) as caught:
        Scripted([{"a": f"{said} {TOKEN} and so on"}]).ask(
            Request((Message("user", "?"),), schema=wanted)
        )
    assert not pieces_of(TOKEN, str(caught.value))
