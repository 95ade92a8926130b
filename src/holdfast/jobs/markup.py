"""HTML in which nothing but an element that was made here can be one.

Text is escaped where it goes into an element, so there is no place at which it could be forgotten.
What would turn text round, or do something in a terminal, is shown as what it is.
"""

from __future__ import annotations

import re
from html import escape

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_VOID = frozenset({"meta", "br", "rect", "path"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | float | None


def plain(text: str) -> str:
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))


def tag(name: str, /, *children: Child, **attributes: Child | bool) -> Html:
    """An element; `class_` and `aria_label` are written as `class` and `aria-label`."""
    told = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        told += f" {word}" if value is True else f' {word}="{_text(str(value))}"'
    if name in _VOID:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    return Html("".join(_text(each) for each in children if each is not None))


def _text(child: Child) -> str:
    if isinstance(child, Html):
        return str(child)
    return escape(plain(str(child)), quote=True)
