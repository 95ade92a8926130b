"""Where secrets stand in a text.

One pattern that never goes back finds what may be one; what it finds is looked at closely, within
a bounded distance.  So a text of any kind takes time by its length.  With each place comes what the
secret says, so that the same secret gets the same tag in every form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from holdfast.mask.chance import chancy, random
from holdfast.mask.encoded import Forms, Overfull, Room, said
from holdfast.mask.formats import AFTER_RUN, BEFORE_RUN, FORMATS, MARKED, SHAPED_RUN
from holdfast.mask.labels import HEX, ISSUERS, PROVIDERS, Named, is_benign, is_secret, prefixed
from holdfast.mask.linear import Pattern
from holdfast.mask.places import FIRST, LOGIN_BEGINS, OPTION_BEGINS, STORES, SURE, WEAK, close

TAG = re.compile(rb"\[SECRET(?::[a-z-]+:[0-9a-f]{8})?\]")
_DEEPEST = 3
"""How often a text may be inside another one."""
_WINDOW = 2048
"""How far is looked from where something may begin, before it is known to be a secret."""
_LONGEST, _SEALED_BEFORE = 16_384, 8192
_NEAR = 512
"""How far from a secret something may be one only once that is gone."""
_ROUNDS = 4
_JUDGED = 64
"""How much of a value tells whether it is a secret."""

_COUNTED = re.compile(r"\{([0-9]+)[0-9,]*\}")
_ENOUGH = 8
_END = re.compile(rb"-----END [A-Z0-9 ]{0,60}-----|KEY(?: BLOCK)?-----")
_ARMOUR = re.compile(rb"[A-Za-z0-9+/=\s\\:,.-]{0,16384}")
_ARMOURED = re.compile(rb"(?:\\+[nr]|[\r\n])*+[A-Za-z0-9+/=]{3}")
_LEFT_OUT = re.compile(rb"\$\{?\w*\}?|\$?[{<(].*[}>)]|%[(sdr{].*|\*+|\.\.+|x{3,}")
_UNQUOTED = re.compile(rb"[^\s\"'`<>(){}\[\],;&|\x00\\]{1,512}")
_MOST_UNQUOTED = 512
_RUN_ON = re.compile(rb"[^\s\"'`<>(){}\[\],;&|\x00\\]*")
_TAIL = re.compile(rb"[A-Za-z0-9_+/=-]*")
_GLUED = re.compile(rb"(?i)[a-z_-]{0,12}?(?:secret|token|key|password)[_-]?(?=[^_-]{32})")
_LONG_KEY = 40
_HASH = re.compile(rb"[0-9a-f]+")
_SIGNS = (b"=", b":", b">", b",", b"|")
_DIGITS = b"0123456789"
_NAME_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-" + _DIGITS
_HINT_BYTES = _NAME_BYTES + b" \t\n\r\f\v'\"\\]?&;\xc3\xb1"
"""Of these are all names that hint at a secret, and what stands between them and a sign."""
_ESCAPE_BEFORE = re.compile(rb"\\[nrtbf]")


class Hit(NamedTuple):
    start: int
    end: int
    kind: str
    says: bytes
    """The secret itself, without the form that it stands in."""


def hits(data: bytes, depth: int = 0, room: Room | None = None) -> list[Hit]:
    """The secrets in a text, from left to right, none over another.

    One that stands inside a run has what `room` that run has left.
    """
    if b"[SECRET" in data:
        data = TAG.sub(lambda tag: b"\0" * len(tag[0]), data)
    found = [*_plain(data), *_runs(data, depth, room)]
    if depth < _DEEPEST:
        found += _escaped(data, depth, room)
    return _apart(found) if len(found) > 1 else found


def may_hold(data: bytes) -> bool:
    """Whether a short text has to be looked at at all; much cheaper than to look."""
    if b"%" in data or b"&" in data or b"\\" in data:
        return True
    for pattern, needs, _ in _scans():
        for need in needs:
            if need in data:
                if pattern.find(data):
                    return True
                break
    return _forms().any_run(data)


def without(data: bytes, tag: Callable[[str, bytes], str]) -> bytes | None:
    """The text with a tag in the place of each secret, if it holds any."""
    found = hits(data)
    if not found:
        return None
    for _ in range(_ROUNDS):
        data, tags = _replaced(data, found, tag)
        # What stood beside a secret may be one too, once that is gone.
        found = [
            Hit(hit.start + start, hit.end + start, hit.kind, hit.says)
            for start, end in _around(data, tags)
            for hit in hits(data[start:end])
        ]
        if not found:
            break
    return data


def _replaced(
    data: bytes, found: list[Hit], tag: Callable[[str, bytes], str]
) -> tuple[bytes, list[tuple[int, int]]]:
    """The text with the tags, and where they stand in it."""
    parts: list[bytes] = []
    tags: list[tuple[int, int]] = []
    at = size = 0
    for hit in found:
        start, end = hit.start, hit.end
        while start > at and data[start] & 0xC0 == 0x80:
            start -= 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1  # never half a character
        put = tag(hit.kind, hit.says).encode()
        parts += (data[at:start], put)
        size += start - at + len(put)
        tags.append((size - len(put), size))
        at = end
    return b"".join((*parts, data[at:])), tags


def _around(data: bytes, tags: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The lines near the tags."""
    spans: list[tuple[int, int]] = []
    last = 0
    for start, end in tags:
        # Nothing is passed over twice, however many tags there are in a line.
        first = data.rfind(b"\n", last, max(last, start - _NEAR)) + 1 or last
        if end + _NEAR > last:
            last = data.find(b"\n", max(last, end + _NEAR))
            last = last if last >= 0 else len(data)
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return spans


def _apart(found: list[Hit]) -> list[Hit]:
    found.sort(key=lambda hit: (hit.start, -hit.end))
    apart: list[Hit] = []
    for hit in found:
        if apart and hit.start < apart[-1].end:
            last = apart[-1]
            if hit.end > last.end:
                says = last.says + hit.says[last.end - hit.start :]
                apart[-1] = Hit(last.start, hit.end, last.kind, says)
        else:
            apart.append(hit)
    return apart


# --- as it stands ---------------------------------------------------------------------------

_Look = Callable[[bytes, int], Hit | None]


class _Scan(NamedTuple):
    """A pattern that runs over whole texts, and what looks at what it finds."""

    pattern: Pattern
    needs: tuple[bytes, ...]
    """One of these is in every text that it can find something in."""
    look: _Look


@cache
def _scans() -> tuple[_Scan, ...]:
    # One pattern of all would need too many states to be fast.
    return (
        _Scan(Pattern(f"{_shapes_begin()}|{FIRST}"), (b"",), _by_its_look),
        _Scan(Pattern(WEAK), _SIGNS, _weak),
        _Scan(Pattern(OPTION_BEGINS), (b"-",), _option),
        _Scan(Pattern(LOGIN_BEGINS), (b"@",), _login),
    )


def _shapes_begin() -> str:
    formats = "|".join(_begun(line) for shapes in FORMATS.values() for line in shapes)
    return rf"(?:\b|\\[nrtbf])(?:{formats})|{'|'.join(MARKED)}"


@cache
def _shapes_at() -> Pattern:
    return Pattern(_shapes_begin())


_HINT = (
    rf"(?i:{SURE}|key|auth|api|access|{ISSUERS})"
    r"(?:\\{1,4}t|[ \t\w.-]){0,60}(?:\\{1,4}[nrt]|[\s'\"\\\]]){0,12}\z"
)
_WORDS = "secret|token|private|key|pass|access|account|auth|api"
_NEARBY = (
    rf"(?i:{ISSUERS})[\s\S]{{0,60}}(?i:{_WORDS})[^\x00]{{0,60}}\z"
    rf"|(?i:{SURE}|[_-]key)[\w.-]{{0,24}}[\s'\"\]\\]{{1,12}}\z"
)
_TELLING = rf"(?i:{_WORDS}|pw|contrase|credential|bearer|cookie|jwt|sig)"
"""A word of which one stands wherever `_NEARBY` finds something; much cheaper to look for."""
_LONG_NAMES = "|".join(name for name in PROVIDERS.split() if len(name) > 3 or name == "aws")
_ISSUER = rf"\b(?i:{_LONG_NAMES})[^\n\x00]{{0,40}}\z"
_forms = cache(Forms)
_pattern = cache(Pattern)


def _begun(shape: str) -> str:
    """How a shape begins: enough to find it, and quick to compile."""
    for count in _COUNTED.finditer(shape):
        if int(count[1]) >= _ENOUGH:
            return f"{shape[: count.start()]}{{{_ENOUGH}}}"
    return shape


@cache
def _shapes() -> dict[str, re.Pattern[bytes]]:
    return {
        kind: re.compile(f"(?:{'|'.join(shapes)})".encode()) for kind, shapes in FORMATS.items()
    }


@cache
def _marks() -> list[tuple[re.Pattern[bytes], str, re.Pattern[bytes]]]:
    return [
        (re.compile(mark.encode()), kind, re.compile(shape.encode()))
        for mark, (kind, shape) in MARKED.items()
    ]


@cache
def _beside_runs() -> tuple[list[tuple[str, re.Pattern[bytes]]], ...]:
    return tuple(
        [(kind, re.compile(shape.encode())) for kind, shape in shapes.items()]
        for shapes in (AFTER_RUN, BEFORE_RUN)
    )


def _plain(data: bytes) -> Iterator[Hit]:
    for scan in _scans():
        for need in scan.needs:
            if need in data:
                yield from _found(data, scan)
                break


def _found(data: bytes, scan: _Scan) -> Iterator[Hit]:
    find, look, at = scan.pattern.find, scan.look, 0
    while span := find(data, at):
        at = span[0] + 1
        if hit := look(data, span[0]):
            yield hit
            at = max(at, hit.end)


def _by_its_look(data: bytes, at: int) -> Hit | None:
    head = data[at : at + 13].lower()
    if head.startswith((b"authorization", b"bearer", b"cookie")):
        return _header(data, at) or _labelled(data, at)
    if head.startswith((b"sshpass", b"mysql")):
        return _short(data, at)
    if head.startswith(b"-----begin"):
        return _key_block(data, at)
    if head[:1] in (b" ", b"\t", b"\n", b"\r", b"'", b'"', b"[", b",", b"-"):
        return _user(data, at) or _sent(data, at) or _mark(data, at)
    if head.startswith(b"kind"):
        return _sealed(data, at)
    if hit := _labelled(data, at):
        return hit
    if not _shapes_at().begins(data, at):
        return None
    return _shape(data, at) or _mark(data, at)


def _shape(data: bytes, at: int) -> Hit | None:
    if escape := _ESCAPE_BEFORE.match(data, at):
        at = escape.end()
    for kind, shape in _shapes().items():
        if found := shape.match(data, at, at + _WINDOW):
            end = found.end()
            if kind == "loose" and not chancy(found[0][:_JUDGED]):
                continue
            if _HASH.fullmatch(found[0]):
                continue  # one hash in so many begins like it
            if end == at + _WINDOW or kind == "jwt":
                tail = _TAIL.match(data, end)
                end = tail.end() if tail else end
            return Hit(at, end, "token" if kind == "loose" else kind, data[at:end])
    return None


def _labelled(data: bytes, at: int) -> Hit | None:
    found = close("label").match(data, at, at + 200)
    if not found:
        return None
    strength = 3 if found[1] is not None else 2
    name_at = max(0, at - 40) + len(data[max(0, at - 40) : at].rstrip(_NAME_BYTES))
    return _valued(data, name_at, found.span(2), found.end(3), strength)


def _weak(data: bytes, at: int) -> Hit | None:
    before = data[max(0, at - 110) : at]
    # One byte more tells whether a word begins there.
    hint = _hinted(before[max(0, len(before.rstrip(_HINT_BYTES)) - 1) :])
    found = close("sign").match(data, at, at + 40) if hint else None
    if not hint or not found:
        return None
    return _valued(data, at - hint, found.span(1), found.end(2), 1)


@lru_cache(maxsize=4096)
def _hinted(before: bytes) -> int:
    """How far before its end a word stands that hints at a secret; 0 if none does."""
    hint = _pattern(_HINT).find(before) if len(before) > 1 else None
    return len(before) - hint[0] if hint else 0


def _valued(data: bytes, name: int, sign: tuple[int, int], at: int, strength: int) -> Hit | None:
    value, quoted = _value(data, at)
    judged = value[:_JUDGED]
    one = Named(
        name=data[name : sign[0]].rstrip(b" \t'\"\\]"),
        sign=data[slice(*sign)],
        tight=at == sign[1] and data[sign[0] - 1 : sign[0]].strip() != b"",
        value=judged,
        quoted=quoted,
        after=data[at + len(value) : at + len(value) + 1],
        strength=strength,
    )
    if not is_secret(one):
        return None
    if not quoted and len(value) == _MOST_UNQUOTED and (more := _RUN_ON.match(data, at)):
        value = more[0]
    return Hit(at, at + len(value), _kind_of(one.name), value)


def _value(data: bytes, at: int) -> tuple[bytes, bool]:
    """What stands there, to its closing quote or to its end, and whether it was quoted."""
    quote = data[at - 1 : at]
    if quote and quote in b"\"'`":
        end = data.find(quote, at, at + _LONGEST)
        line = data.find(b"\n", at, at + _LONGEST)
        if end >= 0 and not 0 <= line < end:
            return data[at:end].rstrip(b"\\"), True
    found = _UNQUOTED.match(data, at)
    return (found[0] if found else b""), False


def _kind_of(name: bytes) -> str:
    found = close("sure").search(name)
    word = found[0].decode("latin-1").lower() if found else "key"
    return "-".join(re.findall("[a-z]+", word))


def _login(data: bytes, at: int) -> Hit | None:
    found = None
    if data[max(0, at - 12) : at].lower().endswith(STORES):
        found = close("stored").match(data, at, at + _WINDOW)
    found = found or close("login").match(data, at, at + _WINDOW)
    if not found:
        return None
    if found[2] is None:
        token = found[1]
        return Hit(*found.span(1), "login", token) if random(token) else None
    if _LEFT_OUT.fullmatch(found[2]):
        return None
    return Hit(*found.span(2), "login", found[2])


def _user(data: bytes, at: int) -> Hit | None:
    found = close("user").match(data, at, at + _WINDOW) or (
        close("user at once").match(data, at, at + _WINDOW) if at == 0 else None
    )
    if (
        not found
        or found[2].isdigit()
        or found[2] == found[1]
        or found[2][:1] in (b"$", b"<", b"{")
    ):
        return None
    if found[2]:
        return Hit(*found.span(2), "login", found[2])
    # Where a service wants a key and nothing else.
    return Hit(*found.span(1), "login", found[1]) if chancy(found[1]) else None


def _option(data: bytes, at: int) -> Hit | None:
    found = close("option").match(data, at, at + _WINDOW)
    if not found:
        return None
    strength = 3 if close("strong").search(found[0][: found.start(1) - at]) else 2
    one = Named(b"", b" ", False, found[1], False, b"", strength)
    return Hit(*found.span(1), "option", found[1]) if is_secret(one) else None


def _header(data: bytes, at: int) -> Hit | None:
    found = close("header").match(data, at, at + _LONGEST)
    if not found or found.lastindex is None:
        return None
    unsure = found["bare"] or found["bearer"]
    if unsure and not chancy(unsure[:_JUDGED]):
        return None
    kind = "cookie" if found["cookie"] else "authorization"
    return Hit(*found.span(found.lastindex), kind, found[found.lastindex])


def _sent(data: bytes, at: int) -> Hit | None:
    """A header that a command is told to send."""
    found = close("sent").match(data, at, at + _WINDOW)
    if not found or found[1][:1] in b"$<{[":
        return None
    return Hit(*found.span(1), "header", found[1])


def _sealed(data: bytes, at: int) -> Hit | None:
    """What a Secret of Kubernetes holds; its parts are sorted by name, so `data` may come first."""
    for found in close("sealed").finditer(data, max(0, at - _SEALED_BEFORE), at + _LONGEST):
        if b"---" not in data[min(at, found.end()) : max(at, found.start())]:
            part = found.lastindex or 0
            return Hit(*found.span(part), "kubernetes", found[part])
    return None


def _short(data: bytes, at: int) -> Hit | None:
    found = close("short").match(data, at, at + _WINDOW)
    return Hit(*found.span(1), "option", found[1]) if found else None


def _key_block(data: bytes, at: int) -> Hit | None:
    begun = close("begin").match(data, at, at + 200)
    if not begun:
        return None
    if end := _END.search(data, begun.end(), begun.end() + _LONGEST):
        return Hit(at, end.end(), "private-key", data[at : end.end()])
    body = _ARMOUR.match(data, begun.end())
    end_at = body.end() if body else begun.end()
    if end_at <= begun.end() + 8 and not _ARMOURED.match(data, begun.end()):
        return None
    return Hit(at, end_at, "private-key", data[at:end_at])


def _mark(data: bytes, at: int) -> Hit | None:
    for mark, kind, shape in _marks():
        if mark.match(data, at):
            for found in shape.finditer(data, max(0, at - 120), at + 300):
                if found.start() <= at < found.end():
                    return Hit(*found.span(), kind, found[0])
    return None


# --- in another form ------------------------------------------------------------------------


def _escaped(data: bytes, depth: int, room: Room | None) -> Iterator[Hit]:
    for part in _forms().unescaped(data):
        for hit in hits(part.data, depth + 1, room):
            start, end = part.origin(hit.start), part.origin(hit.end, end=True)
            yield Hit(start, end, hit.kind, hit.says)


def _runs(data: bytes, depth: int, room: Room | None) -> Iterator[Hit]:
    for start, end in _forms().runs(data):
        run = data[start:end]
        worded = len(run.translate(None, _DIGITS)) == len(run)
        if worded and (run.islower() or run.isupper()):
            continue  # a word of a program, a path
        if depth < _DEEPEST and (inside := _inside(run, depth, room or Room(run))):
            says = inside[0].says if len(inside) == 1 else run
            yield Hit(start, end, inside[0].kind, says)
        elif prefixed(run[:_JUDGED]):
            yield Hit(start, end, "token", run)
        elif worded:
            continue
        elif SHAPED_RUN.fullmatch(run):
            yield Hit(start, end, "token", run)
        elif hit := _beside(data, start, end):
            yield hit
        elif (at := _after_names(data, start, run)) >= 0:
            yield Hit(at, end, "key", data[at:end])


def _inside(run: bytes, depth: int, room: Room) -> list[Hit]:
    try:
        text = said(run, room)
    except Overfull:
        # It is too long to look through, so what is in it is unknown.
        return [Hit(0, len(run), "packed", run)]
    return hits(text, depth + 1, room) if text is not None else []


def _after_names(data: bytes, start: int, run: bytes) -> int:
    """Where a key begins that is told by an issuer and a word for it shortly before."""
    before = data[max(0, start - 130) : start]
    if _pattern(_TELLING).find(before) and _told(_NEARBY, before):
        return start if random(run[:_JUDGED]) else -1
    if (glued := _GLUED.match(run)) and _told(_NEARBY, before + glued[0]):
        return start + glued.end() if random(run[glued.end() :][:_JUDGED]) else -1
    if len(run) < _LONG_KEY or HEX.fullmatch(run) or not _told(_ISSUER, before, run[:8]):
        return -1
    return start if random(run[:_JUDGED]) else -1


def _told(names: str, before: bytes, begun: bytes = b"") -> bool:
    found = _pattern(names).find(before)
    return found is not None and not is_benign(before[found[0] :] + begun)


def _beside(data: bytes, start: int, end: int) -> Hit | None:
    """A token of which the run is a part."""
    if data[end : end + 1] == b".":
        for kind, shape in _beside_runs()[0]:
            if found := shape.match(data, start, end + 200):
                return Hit(*found.span(), kind, found[0])
    before = data[max(0, start - 6) : start]
    # All of these have five digits or two signs of equality there.
    if before[-1:] in (b":", b"|", b"%") and (before[:-1].isdigit() or before[-3:-1] == b"=="):
        for kind, shape in _beside_runs()[1]:
            if found := shape.search(data, max(0, start - 40), end + 100):
                return Hit(*found.span(), kind, found[0])
    return None
