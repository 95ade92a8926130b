"""Secrets become tags before the first byte reaches disk.

The store calls a masker on every record it writes, so no writer can forget it.  This module
knows two rules: a string under a key that names a secret is replaced by `[SECRET:kind:tag]`, and
so are the credentials of an `Authorization:` header inside any string, such as a command.  The tag
is keyed, so that the same secret shows as the same tag and cannot be looked up without the home's
key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

from holdfast.codec import Record
from holdfast.errors import BadValue

Masker = Callable[[Record], Record]

_SECRET_KEY = re.compile(
    r"(?:^|[_-])(password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|access[_-]?key"
    r"|auth[_-]?token|access[_-]?token|refresh[_-]?token|bearer|authorization|cookie|credential)s?$",
    re.IGNORECASE,
)
_MANY = 4096
_PLAIN = frozenset({int, float, bool, type(None)})
_innocent: set[str] = set()
"""Names that were looked at and name no secret; the same few stand in record after record."""
_HEADER = re.compile(
    r"""(authorization[\\"']{0,4}[ \t]{0,8}[:=][ \t]{0,8}[\\"']{0,4})"""
    r"""(?:((?:bearer|basic|token|negotiate|ntlm|api-?key)[ \t]{1,8})([^\s\\"'`]+)"""
    r"""|((?:digest|hawk|aws4-hmac-sha256)[ \t]{1,8})([^\r\n'`]+))""",
    re.IGNORECASE,
)
_SIGN, _LOUD_SIGN = "uthorization", "UTHORIZATION"
"""One of them is in every text that can hold a header, in the spellings that are met."""
_TAG = re.compile(r"\[SECRET:[a-z-]+:[0-9a-f]{8}\]")


def nothing(record: Record) -> Record:
    """The masker of a store that was given none."""
    return record


def by_key_name(key: Callable[[], bytes]) -> Masker:
    """A masker for values under a telling name and for headers, tagged with a key of the home.

    `key` is asked for when the first secret is met.
    """

    def tag(kind: str, secret: str) -> str:
        digest = blake2b(
            secret.encode("utf-8", "surrogatepass"), digest_size=4, key=key()[:64]
        ).hexdigest()
        return f"[SECRET:{kind}:{digest}]"

    def header(found: re.Match[str]) -> str:
        scheme, secret = (found[2], found[3]) if found[2] else (found[4], found[5])
        masked = secret if _TAG.fullmatch(secret) else tag("authorization", secret)
        return found[1] + scheme + masked

    def mask(value: Any, kind: str | None) -> Any:
        if isinstance(value, str):
            if kind and value:
                return value if _TAG.fullmatch(value) else tag(kind, value)
            return _HEADER.sub(header, value) if _may_hold_header(value) else value
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            return {name: mask(inner, _kind(name) or kind) for name, inner in entries.items()}
        if isinstance(value, list | tuple):
            return [mask(inner, kind) for inner in cast("list[Any]", value)]
        return value

    def whole(record: Record) -> Record:
        try:
            return mask(record, None) if _names_a_secret(record) else record
        except RecursionError:
            raise BadValue(
                "nested too deeply", hint="put deep structures into a file and name it"
            ) from None

    return whole


def _names_a_secret(value: Any) -> bool:
    """Whether masking could change anything; most records need no copy."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if not entries.keys() <= _innocent:
            if any(map(_kind, entries)):
                return True
            if len(_innocent) < _MANY:
                _innocent.update(entries)
        value = entries.values()
    elif not isinstance(value, list | tuple):
        return isinstance(value, str) and _may_hold_header(value)
    # Written out, for every record of every log comes through here.
    for inner in cast("Iterable[Any]", value):
        if type(inner) is str:
            if _SIGN in inner or _LOUD_SIGN in inner:
                return True
        elif type(inner) not in _PLAIN and _names_a_secret(inner):
            return True
    return False


def _may_hold_header(text: str) -> bool:
    return _SIGN in text or _LOUD_SIGN in text


@lru_cache(maxsize=_MANY)
def _kind(name: object) -> str | None:
    if not isinstance(name, str):
        return None  # the codec refuses it with a better message
    # Agents write camelCase too: apiKey is api_key.
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    found = _SECRET_KEY.search(spaced)
    return found.group(1).lower().replace("_", "-") if found else None
