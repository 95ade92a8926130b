"""Files that people write by hand: JSON, or YAML without its traps.

Of YAML this takes mappings, lists and plain scalars.  Anchors, tags, several documents and keys
that stand twice are refused; `no` and `on` are words and dates are text, as in YAML 1.2.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, cast

from holdfast.codec import MAX_DEPTH, DecodeError, Json, decode
from holdfast.errors import BadValue

MOST_BYTES = 4 << 20
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Json] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "seq", "map")
)
"""What YAML takes untagged values for; what they are is decided here."""


def parse(data: bytes, name: str) -> Json:
    """The value in a file called `name`; by its first character JSON, else YAML."""
    if len(data) > MOST_BYTES:
        raise BadValue(f"{name}: larger than {MOST_BYTES} bytes", hint="this is a file for people")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadValue(
            f"{name}: not UTF-8 at byte {error.start}", hint="save it as UTF-8"
        ) from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            return decode(text.strip().encode(), limit=MOST_BYTES)
        except DecodeError as error:
            raise BadValue(f"{name}: {error}", hint="or write it as YAML") from None
    return _from_yaml(text, name)


def _from_yaml(text: str, name: str) -> Json:
    yaml = cast("Any", import_module("yaml"))  # most commands never read any
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None):
                raise _Refused(event, "an anchor or alias", "write the value out")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if tree is None else _value(tree, 0)
    except RecursionError:
        raise BadValue(f"{name}: nested too deeply", hint="this is a file for people") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise BadValue(f"{name}: not YAML: {said}", hint="mind indentation and quotes") from None
    except _Refused as refused:
        raise BadValue(f"{name}:{refused.line}: {refused.why}", hint=refused.hint) from None


class _Refused(Exception):
    def __init__(self, node: Any, why: str, hint: str) -> None:
        super().__init__(why)
        self.line, self.why, self.hint = node.start_mark.line + 1, why, hint


def _value(node: Any, depth: int) -> Json:
    kind = type(node).__name__
    if depth > MAX_DEPTH:
        raise _Refused(node, "nested too deeply", "put deep structures into a file of their own")
    if node.tag not in _TAGS:
        raise _Refused(node, f"the tag {node.tag}", "leave it out")
    if kind == "ScalarNode":
        return cast("str", node.value) if node.style else _scalar(node.value)
    if kind == "SequenceNode":
        return [_value(inner, depth + 1) for inner in node.value]
    found: dict[str, Any] = {}
    for key, inner in node.value:
        if type(key).__name__ != "ScalarNode":
            raise _Refused(key, "a key that is no word", "use words as keys")
        if key.value in found:
            raise _Refused(key, f"{key.value!r} stands twice", "leave one of them out")
        found[key.value] = _value(inner, depth + 1)
    return found


def _scalar(text: str) -> Json:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) < 19:
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) and len(text) < 40 else text
