"""What `fuzz` feeds with bytes: every reader of files that somebody else may have written.

A target is one function of the bytes.  It may do what it likes as long as only typed errors
come out, and raises anything else (an AssertionError, most often) when what it checks does
not hold.  A new one is a function and a row in `TARGETS`, and a directory of examples in
`corpus/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.codec import DecodeError, decode, decode_record, encode
from holdfast.errors import HoldfastError
from holdfast.settings import Settings, parse_settings
from holdfast.store.cell import _summed
from holdfast.store.chain import ORIGIN, suffix
from holdfast.store.home import Home
from holdfast.store.letter import Ticket, Waiting
from holdfast.store.packed import Packed
from holdfast.store.primitives import BadLine, Line
from holdfast.store.reader import Source, read_lines, verify
from holdfast.store.segments import Segment, find_tail
from prove.schedule import SimClock
from prove.sim import ROOT, SimFs, State

_BORDER = b"\xff\xfe"
"""Where an input is cut into several files; it stands in no text."""
_STEPS = (7, 1 << 20)


def codec(data: bytes) -> None:
    """What can be read can be written, and is the same when read again."""
    try:
        value = decode(data)
    except DecodeError:
        return
    assert decode(encode(value)) == value
    if isinstance(value, dict):
        assert decode_record(data) == value


def log_reader(data: bytes) -> None:
    """The same lines whatever the reads; their places are in order and inside of the file."""
    parts = data.split(_BORDER)[:4]
    whole = [list(read_lines(_sources(parts, step))) for step in _STEPS]
    assert all(lines == whole[0] for lines in whole), "depends on how much a read returns"
    proofs = [verify(_sources(parts, step)) for step in _STEPS]
    assert all(proof == proofs[0] for proof in proofs), "depends on how much a read returns"
    ends: dict[str, int] = {}
    for line in whole[0]:
        size = len(parts[int(line.segment)])
        assert ends.get(line.segment, 0) <= line.offset < line.end <= size
        ends[line.segment] = line.end
        assert isinstance(line, BadLine) or (line.seq is None) == (line.hash is None)
    sealed = sum(isinstance(line, Line) and line.seq is not None for line in whole[0])
    assert sealed <= proofs[0].sealed


def _sources(parts: list[bytes], step: int) -> Iterable[Source]:
    for number, part in enumerate(parts):
        chunks = (part[at : at + step] for at in range(0, len(part), step))
        yield Source(str(number), 0, number == len(parts) - 1, chunks)


def tail(data: bytes) -> None:
    """Searching backwards finds the line that reading forwards ends with."""
    parts = data.split(_BORDER)[:4]
    segments = [Segment("journal", number) for number in range(len(parts))]
    files = {segment.filename: part for segment, part in zip(segments, parts, strict=True)}
    vfs = _machine(files).process()
    for unended in (False, True):
        found = find_tail(vfs, vfs.root("/"), segments, unended=unended)
        assert found.torn == (not parts[-1].endswith(b"\n") and parts[-1] != b"")
        if found.link is ORIGIN:
            assert found.offset == 0
            continue
        before = files[found.segment][: found.offset]
        ending = suffix(found.link.seq, found.link.digest.hex())
        assert before.endswith(ending) or (unended and before.endswith(ending[:-1]))
        if not unended:
            head = verify(_sources(parts, 1 << 20)).head
            assert (found.link.seq, found.offset) == (head.seq, head.offset)


def stamp(data: bytes) -> None:
    """The sidecar of a view: whole, or as if it were not there."""
    shown, _, sidecar = data.partition(_BORDER)
    for content in (sidecar, _summed(sidecar) if sidecar else b""):
        home = _home({".report.json.view": content, "report.json": shown})
        found = home.cell("report.json").peek()
        if found is None:
            continue
        assert _summed(content[: content.rfind(b',"sum":"')] + b"}") == content, "not its own sum"
        home.cell("report.json").save(7, found, shown)
        again = home.cell("report.json").load(7)
        assert again is not None
        assert again._replace(shown=True) == found._replace(shown=True)


def lease(data: bytes) -> None:
    """Whatever the file says, the lease can be taken, with the next number."""
    home = _home({".lead.lease": data})
    one = home.lease("lead")
    before = one.holder()
    fence = one.acquire("fuzz")
    assert fence > 0
    assert before is None or fence == before.fence + 1
    held = home.lease("lead").holder()
    assert held is not None
    assert (held.purpose, held.alive) == ("fuzz", True)
    one.release()
    assert home.lease("lead").holder() is None


def settings(data: bytes) -> None:
    """Settings that are sound, or a typed error that can be shown."""
    try:
        found = parse_settings(data)
    except HoldfastError as error:
        assert error.hint
        assert str(error)
        return
    assert found.heartbeat > 0
    assert found.offline_after > 0
    assert found.format <= Settings().format


def planted(data: bytes) -> None:
    """The control: wrong for one word in ten million, which chance alone hardly finds."""
    if data[:1] == b"h":  # noqa: SIM102 - each step is a branch that the fuzzer sees
        if data[1:2] == b"f":  # noqa: SIM102
            if data[2:3] == b"!":
                raise KeyError("planted")


def _machine(files: dict[str, bytes]) -> SimFs:
    names = {name: ROOT + 1 + number for number, name in enumerate(files)}
    contents = {names[name]: data for name, data in files.items()}
    return SimFs(State(contents, {ROOT: names}))


def _home(files: dict[str, bytes]) -> Home:
    vfs = _machine(files).process()
    return Home("/", vfs.root("/"), Settings(), vfs, SimClock(0.0))


def packed_segment(data: bytes) -> None:
    """Whatever the bytes are, a text comes out that is as long as it says, or what was lost."""
    text = Packed(lambda count, offset: data[offset : offset + count], len(data))
    found = sum(len(part) if isinstance(part, bytes) else part.size for part in text.chunks(0))
    assert found == text.size
    half = b"".join(part for part in text.chunks(text.size // 2) if isinstance(part, bytes))
    whole = b"".join(part for part in text.chunks(0) if isinstance(part, bytes))
    assert whole.endswith(half)


def message_names(data: bytes) -> None:
    """A name that can be read is written the same again, and fits into a directory."""
    name = data.decode("utf-8", "replace")
    waiting, ticket = Waiting.parse(name), Ticket.parse(name)
    if waiting is not None and name.endswith(".json"):
        assert Waiting.parse(waiting.file) == waiting
    if ticket is not None:
        assert str(ticket) == name
        assert len(name.encode()) <= 255


TARGETS: dict[str, Callable[[bytes], None]] = {
    "codec": codec,
    "log": log_reader,
    "tail": tail,
    "stamp": stamp,
    "lease": lease,
    "settings": settings,
    "packed": packed_segment,
    "names": message_names,
}
