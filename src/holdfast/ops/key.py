"""The verbs of keys: what seals texts, and opens them."""

from __future__ import annotations

import os
from typing import Annotated, Any

from holdfast.errors import NotFound, UsageError
from holdfast.keys import VALUE, Kept, as_text, held, kept, new_key
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.seal import Key, Ring

_CARE = "keep a copy of it elsewhere: without it nobody can read what was sealed"


@example("holdfast key new")
def new(context: Context, *, dry_run: DryRun = False) -> Change:
    place = _changeable(context)
    known = place.ring()
    if known.keys:
        said = f"{place.where} has a key already; `holdfast key rotate` makes the next one"
        return Change(known.current.id, False, said, _told(known), dry_run)
    if dry_run:
        return Change(place.where, True, f"would make a key in {place.where}", {}, dry_run=True)
    fresh = new_key(context.clock)

    def first(ring: Ring) -> list[Key]:
        return list(ring.keys) or [fresh]  # somebody may have been faster

    made = place.change(first)
    applied = made.current.id == fresh.id
    return Change(
        made.current.id,
        applied,
        f"made the key {made.current.id} in {place.where}; {_CARE}",
        _told(made),
    )


@example("holdfast key rotate")
def rotate(context: Context, *, dry_run: DryRun = False) -> Change:
    place = _changeable(context)
    known = place.ring()
    if not known.keys:
        raise NotFound(
            f"there is no key in {place.where} to follow", hint="`holdfast key new` makes one"
        )
    before = known.current.id
    if dry_run:
        said = f"would make the key that follows {before} in {place.where}"
        return Change(place.where, True, said, _told(known), dry_run=True)
    fresh = new_key(context.clock)
    made = place.change(lambda ring: [*ring.keys, fresh])
    said = (
        f"from now on {fresh.id} seals, and {before} opens what it sealed; "
        f"both are in {place.where}; {_CARE}"
    )
    return Change(fresh.id, True, said, _told(made))


@example("holdfast key list", columns="id seals made_at where key")
def list_(
    context: Context,
    *,
    reveal: Annotated[bool, Arg("Show the keys themselves, as HOLDFAST_KEY takes them")] = False,
) -> Rows:
    ring = held(context.clock)
    rows: list[dict[str, Any]] = []
    for number, key in enumerate(ring.keys, 1):
        row = {"id": key.id, "seals": number == len(ring.keys), "made_at": key.made_at}
        rows.append({**row, "where": ring.where} | ({"key": as_text(key)} if reveal else {}))
    return Rows(rows, {"keys": len(rows), "where": ring.where})


def _changeable(context: Context) -> Kept:
    if os.environ.get(VALUE):
        raise UsageError(
            f"{VALUE} is set, and nobody can change it from here",
            hint=f"unset it to keep keys in a file; or put a new key behind the old in {VALUE}",
        )
    return kept(context.clock)


def _told(ring: Ring) -> dict[str, Any]:
    return {"current": ring.current.id, "keys": len(ring.keys), "where": ring.where}
