"""Files of an agent that people edit as well: manifest.json, tasks.json and memory.md.

Edited documents (`store.edited`): each change is a line of the journal first, with the patch, and
what somebody saved with an editor becomes a line too; an old copy that is saved loses nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode
from holdfast.errors import Corrupt
from holdfast.store.edited import EditedDocument
from holdfast.store.merge import merge_json, merge_lines
from holdfast.store.primitives import Log

if TYPE_CHECKING:
    from holdfast.store.home import Home

_MEND = "mend it with an editor; nothing was overwritten"


# --- as anybody may have left them: what is not as it should be counts as empty --------------


def as_object(value: object) -> Record:
    return cast("Record", value) if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Record]:
    """The objects in what should be a list of them."""
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Record", each) for each in found if isinstance(each, dict)]


def decoded(data: bytes | None) -> Record:
    """The object that some bytes hold."""
    try:
        return as_object(decode((data or b"").strip(), limit=MAX_DOCUMENT))
    except DecodeError:
        return {}


def object_at(home: Home, key: str) -> Record:
    """The object that a file holds."""
    text = home.document(key).read()
    return decoded(None if text is None else text.data)


# --- as they are read and changed -----------------------------------------------------------


class OwnText:
    """One of them; used by one thread at a time."""

    def __init__(self, home: Home, agent: str, key: str, journal: Log) -> None:
        self._home, self.agent, self.key, self._journal = home, agent, key, journal

    @cached_property
    def _document(self) -> EditedDocument:
        home, key = self._home, self.key
        return EditedDocument(
            *(home.sheet(key), self._journal, home.cell(f"{key}.history"), home.clock),
            merge=self._merged,
            check=self._saved,
            notice=home.notice,
        )

    def _merged(self, base: str, ours: str, theirs: str) -> str:
        return merge_lines(base, ours, theirs)

    def _saved(self, text: str) -> object:
        """What the file holds; Corrupt if it cannot be used."""
        return text

    def close(self) -> None:
        if "_document" in self.__dict__:
            self.__dict__.pop("_document").close()


class OwnObject(OwnText):
    """One that holds a JSON object, perhaps with a list of objects in it."""

    listed = ""
    """The field of that list."""

    def _merged(self, base: str, ours: str, theirs: str) -> str:
        return theirs if base == ours or not ours.strip() else merge_json(base, ours, theirs)

    def _saved(self, text: str) -> Record:
        """An empty file is a save that was cut off."""
        if not text.strip():
            raise Corrupt("it is empty", hint=_MEND)
        return self._parsed(text)

    def _parsed(self, text: str) -> Record:
        return parsed(text, self.listed)

    def _look(self) -> Record:
        """The document as the file has it, without a byte being written."""
        text = self._home.document(self.key).read()
        try:
            found = text.data.decode("utf-8", "replace") if text is not None else None
            return self._parsed("") if found is None else self._saved(found)
        except Corrupt as error:
            said = f"{self.key} cannot be read: {error.message}"
            raise Corrupt(said, hint=error.hint, path=self.key) from None


def parsed(text: str, objects_in: str = "") -> Record:
    """The object in a text, an empty one of an empty text; perhaps with a list of objects in it."""
    empty: Record = {objects_in: []} if objects_in else {}
    try:
        found = decode(text.encode(), limit=MAX_DOCUMENT) if text.strip() else empty
    except DecodeError as error:
        raise Corrupt(str(error), hint=_MEND) from None
    if not isinstance(found, dict):
        raise Corrupt("no object", hint=_MEND)
    listed: object = found.get(objects_in)
    many = cast("list[object]", listed) if isinstance(listed, list) else [None]
    if objects_in and not all(isinstance(each, dict) for each in many):
        raise Corrupt(f"no list of objects under `{objects_in}`", hint=_MEND)
    return found
