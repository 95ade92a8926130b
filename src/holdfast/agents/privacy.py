"""Texts of a home that no log carries, with their secrets out.

What goes into a log is masked by the store.  What a command printed, and the context it was given,
are files of their own: they come through here before they are written, and get the same tags.
"""

from __future__ import annotations

import secrets

from holdfast import mask
from holdfast.codec import Record
from holdfast.errors import ConfigError
from holdfast.store.document import FileDocument
from holdfast.store.home import Home
from holdfast.store.place import Place, Tools

MASK_KEY, _LEAST = ".mask-key", 16
"""The key of the home's tags, as the store keeps it."""


def without_secrets(home: Home, text: str) -> str:
    """`text` with a tag for each secret, as the home's logs would show it."""
    return mask.by_key_name(lambda: mask_key(home))({"text": text})["text"]


def record_without_secrets(home: Home, record: Record) -> Record:
    """The same of an object: also what stands under a telling name."""
    return mask.by_key_name(lambda: mask_key(home))(record)


def mask_key(home: Home) -> bytes:
    """The key of the home's tags, made if there is none."""
    tools = Tools(home.vfs, home.clock, mask.nothing, str, _unheard)
    document = FileDocument(Place(home.root, (), tools), MASK_KEY)
    text = document.read()
    if text is None:
        document.update(lambda old: old or secrets.token_hex(32).encode())
        text = document.read()
    try:
        key = bytes.fromhex(text.data.decode() if text else "")
    except ValueError:
        key = b""
    if len(key) < _LEAST:
        raise ConfigError(
            f"{MASK_KEY} is damaged",
            hint="restore it from a backup, or remove it: then the same secret gets another tag",
            path=MASK_KEY,
        )
    return key


def _unheard(word: str, detail: str) -> None:
    """Nobody listens: the store itself tells of what is odd here."""
