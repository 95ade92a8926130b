"""Text that came from data, made safe to show on a terminal.

Control characters, terminal escapes, bidirectional overrides, invisible tag characters and
bytes that were no UTF-8 become visible escapes; everything else stays as it is.  This is for
people: `--json` loses nothing.
"""

from __future__ import annotations

import re
from functools import cache

_ESCAPED = (
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1: a lone U+009B already starts a terminal escape
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # bidi controls, line separators
    "\ud800-\udfff"  # what was not UTF-8
    "\U000e0000-\U000e007f]"  # tags: text that only a machine sees
)
NEWLINE = "␊"


def safe(text: str, *, lines: bool = False) -> str:
    """`text` without surprises; with `lines` its newlines and tabs keep their meaning."""
    if text.isprintable():
        return text
    if lines:
        return _escaped().sub(_visible_in_lines, text)
    return _escaped().sub(_visible, text)


def safe_json(text: str) -> str:
    """JSON text with the same characters as JSON escapes: it still means what it meant."""
    return text if text.isascii() and "\x7f" not in text else _escaped().sub(_json_escape, text)


@cache
def _escaped() -> re.Pattern[str]:
    # Most runs meet only text that needs none of this.
    return re.compile(_ESCAPED)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == 0x0A:
        return NEWLINE
    if code < 0x100:
        return {0x09: "\\t", 0x0D: "\\r"}.get(code, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _visible_in_lines(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else _visible(found)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
