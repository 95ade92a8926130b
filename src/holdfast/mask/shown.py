"""A part of a text.

Half a secret is one that nothing recognises, so they are taken out before the text is cut.
"""

from __future__ import annotations

from holdfast.mask import hiding

_TIMES = 64
"""How much more is looked at than shown."""


def beginning(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    looked_at = text if len(text) <= _TIMES * most else _whole_words(text[: _TIMES * most])
    return f"{_clean(looked_at)[:most]}…"


def end(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    looked_at = text if len(text) <= _TIMES * most else _whole_words(text[-_TIMES * most :], -1)
    return _clean(looked_at)[-most:]


def _whole_words(text: str, side: int = 1) -> str:
    """Without the word at which it was cut, unless it is all one word."""
    words = text.rsplit(maxsplit=1) if side > 0 else text.split(maxsplit=1)[::-1]
    return words[0]


def _clean(text: str) -> str:
    return hiding()({"text": text})["text"]
