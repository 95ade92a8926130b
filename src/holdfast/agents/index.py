"""state/index.json: who there is, who descends from whom, and how many lines each has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.clock import instant_of
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode, pretty
from holdfast.layout import HOLDFAST
from holdfast.ledger.book import agents, key_of

if TYPE_CHECKING:
    from holdfast.layout import Layout, Part
    from holdfast.store.home import Home


def refresh(home: Home) -> bool:
    """Whether it had to be written: it stays as it is while nothing in it would change."""
    known = {name: _entry(home, name) for name in agents(home)}
    document = home.document(HOLDFAST.path("index"))
    text = document.read()
    if text is not None and _object(text.data).get("agents") == known:
        return False
    document.replace(pretty({"updated": round(home.clock.now(), 6), "agents": known}))
    return True


def parent_in(home: Home, layout: Layout, name: str) -> str | None:
    """Whose child an agent is, as its manifest says, in the case of folders."""
    text = home.document(key_of(home, layout, "manifest", name)).read()
    found = None if text is None else _parent(_object(text.data))
    return None if found is None else found.lower()


def _entry(home: Home, name: str) -> Record:
    key = HOLDFAST.manifest(name)
    text = home.document(key).read()
    manifest = {} if text is None else _object(text.data)
    entry: Record = {"parent_id": _parent(manifest), "manifest_path": key if manifest else None}
    if (born := _instant(manifest.get("created_at"))) is not None:
        entry["created_ts"] = born
    counters = {"memory_lines": "conversation", "events_lines": "events"}
    entry["counters"] = {
        shown: _lines(home, name, cast("Part", part)) for shown, part in counters.items()
    }
    return entry


def _parent(manifest: Record) -> str | None:
    ancestry = manifest.get("ancestry")
    named = cast("Record", ancestry).get("parent_id") if isinstance(ancestry, dict) else None
    found = named or manifest.get("parent_id")
    return found if isinstance(found, str) and found else None


def _lines(home: Home, name: str, part: Part) -> int:
    log = home.log(HOLDFAST.path(part, name))
    try:
        return log.head().seq
    finally:
        log.close()


def _instant(stamp: object) -> float | None:
    try:
        return instant_of(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = decode(data.strip(), limit=MAX_DOCUMENT)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
