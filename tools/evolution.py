"""Whether the schemas still accept what was released.

python tools/evolution.py              compare with the last release, exit 1 if something broke
python tools/evolution.py --release    remember the schemas as they are: part of making a release

A version that was released is kept for ever.  Its schema may grow optional fields and more
values; whoever takes something away adds a new form to the kind, with a function that upgrades
the old one.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.contracts.kinds import KINDS
from holdfast.contracts.schema import schema_of

REPO = Path(__file__).resolve().parent.parent
RELEASED = REPO / "tests" / "contracts" / "released"

Schema = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", action="store_true", help="remember the schemas as they are")
    if parser.parse_args().release:
        return release()
    broken = list(breaks_since(RELEASED))
    for each in broken:
        print(each)
    return 1 if broken else 0


def release() -> int:
    RELEASED.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        for form in kind.forms:
            path = RELEASED / f"{kind.name}@{form.version}.json"
            text = json.dumps(schema_of(kind, form), indent=1, ensure_ascii=False, sort_keys=True)
            path.write_text(text + "\n", encoding="utf-8")
    return 0


def breaks_since(released: Path) -> Iterator[str]:
    """What somebody who wrote by a released schema would trip over."""
    now = {
        f"{kind.name}@{form.version}": schema_of(kind, form)
        for kind in KINDS
        for form in kind.forms
    }
    for path in sorted(released.glob("*.json")):
        name = path.name.removesuffix(".json")
        if name not in now:
            yield f"{name}: the version is gone; keep its form and let it be upgraded"
            continue
        for what in breaks(json.loads(path.read_text("utf-8")), now[name]):
            yield f"{name}: {what}; add a version and an upgrade function instead"


def breaks(old: Schema, new: Schema) -> Iterator[str]:
    """How `new` refuses or misses what `old` had."""
    yield from _breaks(old, new, (old, new), "", set())


def _breaks(
    old: Schema, new: Schema, roots: tuple[Schema, Schema], where: str, seen: set[tuple[str, str]]
) -> Iterator[str]:
    references = (str(old.get("$ref", "")), str(new.get("$ref", "")))
    if any(references):
        if references in seen:
            return
        seen = seen | {references}
    old, new = _resolved(old, roots[0]), _resolved(new, roots[1])
    if gone := _values(old) - _values(new) if _values(new) else set():
        yield f"{where or 'the whole'} no longer takes {', '.join(sorted(gone))}"
    if (types := _types(new)) and (gone := _types(old) - types):
        yield f"{where or 'the whole'} no longer takes {', '.join(sorted(gone))}"
    fields, newer = old.get("properties", {}), new.get("properties", {})
    for name in sorted(set(old.get("required", ())) - newer.keys()):
        yield f"{_join(where, name)} was required and is gone"
    for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{_join(where, name)} is required and was not"
    for name in fields.keys() & newer.keys():
        yield from _breaks(fields[name], newer[name], roots, _join(where, name), seen)
    for keyword in ("items", "additionalProperties"):
        if isinstance(old.get(keyword), dict) and isinstance(new.get(keyword), dict):
            yield from _breaks(old[keyword], new[keyword], roots, f"{where}[]", seen)


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _resolved(schema: Schema, root: Schema) -> Schema:
    """The schema with its reference, and its only object alternative, put in its place."""
    if "$ref" in schema:
        _, _, name = schema["$ref"].rpartition("/")
        return _resolved(root["$defs"][name], root)
    alternatives = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(alternatives) == 1:
        return _resolved(alternatives[0], root)
    return schema


def _values(schema: Schema) -> set[str]:
    found = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {json.dumps(each) for each in found}


def _types(schema: Schema) -> set[str]:
    told = schema.get("type", ())
    return {told} if isinstance(told, str) else set(told)


if __name__ == "__main__":
    sys.exit(main())
