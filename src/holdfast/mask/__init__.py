"""Secrets become tags before the first byte reaches disk.

The store calls a masker on every record it writes, so no writer can forget it.  A string under a
key that names a secret is replaced by `[SECRET:kind:tag]`, and so is what looks like a secret, or
is called one, inside any string, also a key: a command, a log, an error.  The tag is keyed, so that
the same secret shows as the same tag and cannot be looked up without the home's key.

Most records hold none, so they are told apart first, by little work; what finds secrets in texts is
loaded when the first text comes that is worth it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any, cast

from holdfast.codec import Record
from holdfast.errors import BadValue

Masker = Callable[[Record], Record]

_SECRET_KEY = re.compile(
    r"(?:^|[_.-])((?:password|passwd|passphrase|passcode|pwd|secret|bearer|authorization|cookie"
    r"|credential|connection[_-]?string|(?:api|private|access|account|signing|encryption|master"
    r"|service|shared|license|deploy|webhook|consumer|ssh|secret)[_-]?key)s?"
    r"|(?:auth|access|refresh|session|security|id|api|bot|deploy|push|device)[_-]?tokens?"
    r"|token|jwt)$",
    re.IGNORECASE,
)
_NO_SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:next|page|continuation|stop|eos|bos|pad|unk|sep|cls|mask|special|cancel|fence"
    r"|fencing|first|last|start|end|current|public)[_.-](?:page[_.-])?(?:token|key)$",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    r"(?!.*(?:PUBLIC|PRIMARY|CACHE|SORT|FOREIGN|HOT))[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY"
)
_OPTION = re.compile(
    r"--?[A-Za-z0-9-]*(?:password|passwd|passphrase|passcode|pwd|secret|token|api-?key|access-?key)",
    re.IGNORECASE,
)
_LOGINS = frozenset({"-u", "-U", "--user", "--proxy-user"})
_MANY = 4096
_SHORT, _REMEMBERED, _AT_ONCE = 12, 200, 4096
_LONGEST_ID, _PIECE = 24, "(?:[a-z]{1,11}|[0-9]{1,8}|[a-z0-9]{1,7})"
_ID = re.compile(rf"{_PIECE}(?:[-_.]{_PIECE})+(?:/[0-9]{{1,8}})?")
_WORDS = re.compile(r"[A-Za-z]{1,16}[0-9]{0,3}(?:[-_./ ][A-Za-z]{1,16}[0-9]{0,3})*")
"""A key of words, as nearly all are: it may name a secret, and is none."""
_DIGEST = re.compile("(?![0-9]*$)(?:[0-9a-f]{40}|[0-9a-f]{64})")
_PRINTABLE = bytes(range(32, 127)) + b"\t\r\n"
_SIGNS, _BLANKS = b"=:>|@%&\\\"'`", b" \t\n\v\f\r"
_SHAPE = bytes(
    ord("!") if byte in _SIGNS else ord(" ") if byte in _BLANKS else ord("x") for byte in range(256)
)
_LONG_WORD = b"x" * 12
_PLAIN = frozenset({int, float, bool, type(None)})
_innocent: set[str] = set()
"""Names that were looked at and name no secret; the same few stand in record after record."""
_harmless: set[str] = set()
"""Texts that were looked at and hold none."""
_long: deque[str] = deque(maxlen=4)
"""The last ones that are too long to keep many: an answer is looked at for its audit, its log and
the state behind it."""
_TAG = re.compile(r"\[SECRET(?::[a-z-]+:[0-9a-f]{8})?\]")


def nothing(record: Record) -> Record:
    """The masker of a store that was given none."""
    return record


def by_key_name(key: Callable[[], bytes]) -> Masker:
    """A masker for what a name or its own look tells to be secret, tagged with a key of the home.

    `key` is asked for when the first secret is met.
    """
    return _masker(_Masking(key))


def hiding() -> Masker:
    """The same without a key: its tags say only that a secret stood there."""
    return _masker(_Masking(None))


def _masker(masking: _Masking) -> Masker:
    def whole(record: Record) -> Record:
        unseen: list[str] = []
        try:
            if not _tells(record, unseen) and not (unseen and _may_hold(unseen)):
                return record
            masked = masking.mask(record, None)
            if masked == record:
                return record
        except RecursionError:
            raise BadValue(
                "nested too deeply", hint="put deep structures into a file and name it"
            ) from None
        return masked

    return whole


class _Masking:
    """What is done with a record that is worth it."""

    def __init__(self, key: Callable[[], bytes] | None) -> None:
        self._key = key

    def mask(self, value: Any, kind: str | None) -> Any:
        if isinstance(value, str):
            return self._secret(kind, value) if kind else self._text(value)
        if isinstance(value, dict):
            entries, masked = cast("dict[str, Any]", value), dict[str, Any]()
            named = _named(entries)
            for name, inner in entries.items():
                hidden = name if _is_words(name) else self._text(name)
                while hidden in masked:  # without a key all tags are the same
                    hidden += "+"
                tells = _kind(name) or kind or (named if name == "value" else None)
                masked[hidden] = self.mask(inner, tells)
            return masked
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            before = ["", *(item if isinstance(item, str) else "" for item in items)]
            return [self._item(*pair, kind) for pair in zip(before, items, strict=False)]
        return value

    def _item(self, before: str, value: Any, kind: str | None) -> Any:
        """An item of a list, which may be a command: the one before it tells what it is."""
        if before[:1] != "-" or not isinstance(value, str) or value[:1] == "-":
            return self.mask(value, kind)
        if before in _LOGINS:
            user, colon, secret = value.partition(":")
            if secret and not secret.isdigit():
                return user + colon + self._secret("login", secret)
        return self.mask(value, kind or ("option" if _OPTION.fullmatch(before) else None))

    def _secret(self, kind: str, value: str) -> str:
        if not value or _TAG.fullmatch(value):
            return value
        return self._tag(kind, value.encode("utf-8", "surrogatepass"))

    def _tag(self, kind: str, secret: bytes) -> str:
        if self._key is None:
            return "[SECRET]"
        digest = blake2b(secret, digest_size=4, key=self._key()[:64]).hexdigest()
        return f"[SECRET:{kind}:{digest}]"

    def _text(self, value: str) -> str:
        if len(value) < _SHORT and not _looks_odd(value):
            return value
        # Beside a text that is worth it, most are names that stand in record after record.
        if value in _harmless or _is_id(value):
            return value
        without = _finder().without(value.encode("utf-8", "surrogatepass"), self._tag)
        if without is None:
            _remember(value)
            return value
        return without.decode("utf-8", "surrogatepass")


def _named(entries: dict[str, Any]) -> str | None:
    """What the value is of an entry that has its name beside it, as lists of variables do."""
    return _kind(entries.get("name") or entries.get("key")) if "value" in entries else None


def _is_words(name: object) -> bool:
    """Whether a key can be no secret itself; one that is no text is left to the codec."""
    return not isinstance(name, str) or not name or _WORDS.fullmatch(name) is not None


def _names_tell(entries: dict[str, Any], unseen: list[str]) -> bool:
    if any(map(_kind, entries)) or _named(entries):
        return True
    for name in entries:
        if name not in _harmless and not _is_words(name):
            unseen.append(name)
        elif name != "value" and len(_innocent) < _MANY:
            _innocent.add(name)
    return False


def _tells(value: Any, unseen: list[str]) -> bool:
    """Whether a name tells of a secret; texts that have to be looked at go to `unseen`."""
    if issubclass(type(value), dict):
        entries: dict[str, Any] = value
        if not entries.keys() <= _innocent and _names_tell(entries, unseen):
            return True
        value = entries.values()
    elif not issubclass(type(value), list | tuple):
        if issubclass(type(value), str):
            unseen.append(value)
        return False
    # Written out, for every record of every log comes through here.
    for inner in value:
        if type(inner) is str:
            if inner not in _harmless and (len(inner) <= _REMEMBERED or inner not in _long):
                unseen.append(inner)
        elif inner and type(inner) not in _PLAIN and _tells(inner, unseen):
            return True
    return False


def _looks_odd(short: str) -> bool:
    """Whether a short text can be more than a word: only then can it hold a secret."""
    return "=" in short or ":" in short or short[:1] == "-"


def _is_id(text: str) -> bool:
    """Whether it is a short one such as a session or its turn has, or a digest: most hold some."""
    if len(text) <= _LONGEST_ID:
        return _ID.fullmatch(text) is not None
    return _DIGEST.fullmatch(text) is not None and not _may_be_text(bytes.fromhex(text[:20]))


def _may_be_text(begun: bytes) -> bool:
    """Whether something in hex may be a text, and so hold a secret, by its first bytes."""
    return len(begun.translate(None, _PRINTABLE)) <= 1


def _may_hold(unseen: list[str]) -> bool:
    together = " ".join(unseen)
    if len(together) > _AT_ONCE:
        return True
    if _is_prose(together):
        return False
    worth = [one for one in unseen if (len(one) >= _SHORT or _looks_odd(one)) and not _is_id(one)]
    for one in worth:
        if one[:1] == "-":
            return True  # a command in pieces
    joined = "\n".join(worth)
    if worth and _finder().may_hold(joined.encode("utf-8", "surrogatepass")):
        return True
    for one in unseen:
        _remember(one)
    return False


def _is_prose(text: str) -> bool:
    """Whether it is words only: no sign that a secret follows, no word as long as one."""
    if ":" in text:
        return False  # the sign that most texts have which are not words only
    # A few searches in bytes: between two syncs nothing costs as much as code out of the cache.
    shape = text.encode("utf-8", "surrogatepass").translate(_SHAPE)
    return not (b"!" in shape or _LONG_WORD in shape or " -" in text or text[:1] == "-")


@cache
def _finder() -> Any:
    from holdfast.mask import text  # noqa: PLC0415  # most processes write nothing worth it

    return text


def _remember(harmless: str) -> None:
    # An option holds no secret, but tells that the next word is one: it has to be met each time.
    if harmless[:1] == "-":
        return
    if len(harmless) > _REMEMBERED:
        _long.append(harmless)
        return
    if len(_harmless) >= _MANY:
        _harmless.clear()
    _harmless.add(harmless)


@lru_cache(maxsize=_MANY)
def _kind(name: object) -> str | None:
    if not isinstance(name, str):
        return None  # the codec refuses it with a better message
    # Agents write camelCase too: apiKey is api_key.
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    found = _SECRET_KEY.search(spaced)
    if found and not _NO_SECRET_KEY.search(spaced):
        return "-".join(re.findall("[a-z]+", found.group(1).lower()))
    return "key" if _VARIABLE.fullmatch(name) else None
