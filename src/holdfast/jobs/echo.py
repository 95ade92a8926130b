"""Whether a summary only says again what was asked.

What somebody else said before, and files that were shown, are part of a question too: who repeats
those may well have something to say by it.  So a long text counts as an echo of the task, of the
phase and of guidance, of the rules, or of the question as a whole.
"""

from __future__ import annotations

import re
from itertools import dropwhile

LONG_ECHO = 40
"""So many characters are not the same by chance."""
_WORD = re.compile(r"[^\W_]+")
_REPORTED = re.compile(r"<others ([0-9a-f]{16})>\n(.*?)\n</others \1>", re.DOTALL)
_FILLERS = """
    a an the this my your our its it is was were are be i we you to of do by for here
    task tasks job prompt question request phase description objective details acceptance
    instructions instruction assignment goal summary asked told given again user system
"""
_SAYS_NOTHING = frozenset(_FILLERS.split())
"""Words that may stand around an echo and make nothing else of it."""


def is_echo(summary: str, asked: str) -> bool:
    """Whether it is the question or a paragraph of it, or a long piece of it and nothing else."""
    return _is_paragraph(summary, asked) or _is_piece(summary, asked)


def _is_paragraph(summary: str, asked: str) -> bool:
    told = _folded(summary)
    first = told[:1]
    for each in (asked, *asked.split("\n\n")):
        if each.lstrip()[:1].casefold()[:1] != first:
            continue  # most begin otherwise: that is seen without folding all of it
        part = _folded(each)
        if told == part or (len(told) >= LONG_ECHO and part.startswith(told)):
            return True
    return False


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_piece(summary: str, asked: str) -> bool:
    words = _words(summary)
    inner = _without_labels(words)
    if len(" ".join(inner)) < LONG_ECHO:
        return False
    whole = asked.casefold()
    # A summary nearly always has a word of its own, and that is seen without taking all apart.
    if not all(each in whole for each in inner):
        return False
    told, every = _joined(inner), _joined(_words(asked))
    if told not in every:
        return False
    reported = [_joined(_words(text)) for _, text in _REPORTED.findall(asked)]
    return told in _joined(_words(_REPORTED.sub("", asked))) or not any(
        told in each for each in reported
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _without_labels(words: list[str]) -> list[str]:
    ahead = [*dropwhile(_SAYS_NOTHING.__contains__, words)]
    return [*dropwhile(_SAYS_NOTHING.__contains__, reversed(ahead))][::-1]


def _joined(words: list[str]) -> str:
    """With a space at both ends, so that a word is never found in the middle of another."""
    return f" {' '.join(words)} "
