"""Who an agent is: manifest.json, which people edit as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any, NamedTuple, cast

from holdfast.agents.document import OwnObject, as_object, parsed
from holdfast.codec import Record, pretty
from holdfast.errors import BadValue

CHANGED = "persona_changed"
KEPT = ("agent_id", "created_at", "ancestry", "parent_id")
"""What no edit changes: by these others know the agent."""
_HOISTED = ("roles", "creator", "origin", "description")


class Edit(NamedTuple):
    before: Record
    after: Record

    @property
    def fields(self) -> list[str]:
        """The names of what is not as it was."""
        names = (*self.before, *(name for name in self.after if name not in self.before))
        return [name for name in names if self.before.get(name) != self.after.get(name)]


class Persona(OwnObject):
    """The manifest of one agent."""

    def read(self) -> Record:
        """The manifest; what was edited by hand is taken in first."""
        return parsed(self._document.read() or "")

    def look(self) -> Record:
        """The manifest as the file has it, without a byte being written."""
        return self._look()

    def change(self, change: Callable[[Record], Record], **more: Any) -> Edit:
        """Put what `change` makes of the manifest on record, with `more`; nothing, if that is what
        it is.
        """
        act: Record = {"event": CHANGED, **more}
        done = Edit({}, {})

        def apply(text: str) -> str:
            nonlocal done
            before = parsed(text)
            after = change(before)
            given = {name: after[name] for name in after if after[name] != before.get(name)}
            after |= self._home.mask(given)
            checked(after)
            done = Edit(before, after)
            if not done.fields:
                return text
            act["message"] = ", ".join(done.fields)
            if goals_in(before) != goals_in(after):
                act["goals"] = goals_in(after)
            return pretty(after).decode()

        self._document.update(apply, act)
        return done


def checked(manifest: Record) -> list[str]:
    """What is odd about a manifest, in words; BadValue if it cannot be one."""
    from holdfast.contracts.persona import MANIFEST  # noqa: PLC0415 - only who changes it needs it

    reading = MANIFEST.read(manifest)
    said = [f"{each.field}: {each.reason}" for each in reading.findings]
    if reading.record is None or reading.value != manifest:
        raise BadValue(
            f"not a persona: {'; '.join(said)[:400]}",
            hint="`holdfast schema manifest` shows what one looks like",
        )
    return said


def goals_in(manifest: Record) -> list[str]:
    """What an agent is for, the most general first."""
    goals = manifest.get("goals")
    if found := as_object(goals):
        return [*_texts(found.get("global")), *_texts(found.get("local"))]
    return _texts(goals)


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in cast("list[object]", value)]
    return [value] if isinstance(value, str) and value else []


# --- ready-made, or from a file -------------------------------------------------------------


def library() -> dict[str, str]:
    """The texts of the ready-made personas by name: YAML, as `from_text` reads it."""
    folder = files("holdfast.agents").joinpath("personas")
    found = {each.name.removesuffix(".yaml"): each for each in folder.iterdir()}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def from_text(text: str, name: str, source: str) -> Record:
    """The manifest of an agent called `name`, from JSON or YAML that others may have written.

    A name of its own becomes `display_name`; a parent that is elsewhere is left out.  Lines
    `#@key: value` at the top, as YSON has them, count as fields.
    """
    from holdfast.byhand import parse  # noqa: PLC0415

    found = parse(text.encode(), source)
    if not isinstance(found, dict):
        raise BadValue(f"{source}: no persona", hint="an object with roles, core_directives, …")
    given: Record = {**dict(_above(text)), **found}
    for inner in ("identity", "agent"):
        if isinstance(given.get(inner), dict):
            part = cast("Record", given.pop(inner))
            taken = {each: part.pop(each) for each in (*_HOISTED, "name", "tags") if each in part}
            given = {**taken, **given, **({inner: part} if part else {})}
    names = [given.pop(each, None) for each in ("agent_id", "id", "name")]
    called = next((each for each in names if isinstance(each, str) and each), name)
    for each in ("ancestry", "parent_id", "created_at"):
        given.pop(each, None)
    manifest = {"agent_id": name, **_in_our_fields(given)}
    if called.lower() != name.lower():
        manifest.setdefault("display_name", called)
    return manifest


def _above(text: str) -> Iterator[tuple[str, str]]:
    for line in text.lstrip("\ufeff").splitlines():
        key, colon, value = line.removeprefix("#@").partition(":")
        if line.startswith("#@") and colon and key.strip() in ("tags", *_HOISTED[1:]):
            yield key.strip(), value.strip()
        elif line.strip() and not line.startswith("#"):
            return


def _in_our_fields(given: Record) -> Record:
    found = dict(given)
    if (tags := found.pop("tags", None)) is not None:
        found.setdefault("persona_tags", _listed(tags))
    runtime: object = found.get("runtime") or {}
    if isinstance(model := found.get("model"), str) and isinstance(runtime, dict):
        del found["model"]
        found["runtime"] = {"model": model, **cast("Record", runtime)}
    for name in ("roles", "core_directives", "persona_tags"):
        if isinstance(found.get(name), str):
            found[name] = _listed(found[name]) if name != "core_directives" else [found[name]]
    goals = found.get("goals")
    if isinstance(goals, str):
        found["goals"] = {"global": goals}
    elif isinstance(goals, list):
        found["goals"] = {"local": goals}
    return found


def _listed(value: Any) -> Any:
    """`a, b` is how people write a list in a line."""
    if not isinstance(value, str):
        return value
    return [each.strip() for each in value.strip("[] ").split(",") if each.strip()]


def patched(manifest: Record, patch: Record) -> Record:
    """The manifest with a patch merged in (RFC 7396): null takes a field away."""
    wrong = [name for name in KEPT if name in patch and patch[name] != manifest.get(name)]
    if wrong:
        raise BadValue(
            f"{wrong[0]} stays as it is",
            hint="another name is another agent: `holdfast agent fork OLD NEW`",
        )
    return cast("Record", _patched(manifest, patch))


def _patched(value: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    result: Record = dict(cast("Record", value)) if isinstance(value, dict) else {}
    for name, inner in cast("Record", patch).items():
        if inner is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), inner)
    return result


def replaced(manifest: Record, new: Record) -> Record:
    """A manifest that somebody wrote anew, of the same agent."""
    gone = {name: None for name in manifest if name not in new and name not in KEPT}
    patched(manifest, {name: new[name] for name in KEPT if name in new})
    kept = {name: manifest[name] for name in KEPT if name in manifest}
    return {name: value for name, value in {**kept, **new}.items() if name not in gone}
