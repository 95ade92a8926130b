"""Where the keys of sealed texts are: never in a home.

Whoever has a home and not its keys has no texts.  So keys are kept with the settings of the user,
in a file that only he can read; or in the file that HOLDFAST_KEYS names; or HOLDFAST_KEY is one, or
several with blanks between them.  The newest comes last and is the one that seals.
"""

from __future__ import annotations

import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, cast

from holdfast import mask
from holdfast.clock import Clock, utc_stamp
from holdfast.codec import DecodeError, decode, pretty
from holdfast.errors import BadValue, ConfigError, NotOurs, UsageError, typed
from holdfast.seal import SECRET_BYTES, Key, Ring
from holdfast.settings import SETTINGS
from holdfast.store.document import FileDocument
from holdfast.store.place import Place, Tools
from holdfast.store.vfs import RealVfs

VALUE, WHERE = "HOLDFAST_KEY", "HOLDFAST_KEYS"
_FORMAT = 1
_PREFIX = "holdfast_key_"
"""By which a key that was copied to a wrong place is known for one, and masked."""
_OTHERS = 0o077


def as_text(key: Key) -> str:
    """A key as HOLDFAST_KEY takes it."""
    return _PREFIX + urlsafe_b64encode(key.secret).decode().rstrip("=")


def from_text(text: str) -> Key:
    bare = text.removeprefix(_PREFIX)
    try:
        secret = urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES or not text.startswith(_PREFIX):
        raise BadValue(
            f"this is no key: it has {len(text)} characters",
            hint="`holdfast key list --reveal` shows keys as they have to be given",
        )
    return Key(secret)


def new_key(clock: Clock) -> Key:
    return Key(secrets.token_bytes(SECRET_BYTES), utc_stamp(clock.now()))


def held(clock: Clock, environ: Mapping[str, str] = os.environ) -> Ring:
    """The available keys; none is no error until one is needed."""
    if given := environ.get(VALUE, "").replace(",", " ").split():
        return Ring([from_text(each) for each in given], VALUE)
    return kept(clock, environ).ring()


def kept(clock: Clock, environ: Mapping[str, str] = os.environ) -> Kept:
    """Where new keys go."""
    return Kept(environ.get(WHERE) or os.path.join(folder(), "keys.json"), clock)


class Kept:
    """A file that only its owner can read."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.where, self._clock = os.path.abspath(os.path.expanduser(path)), clock

    def ring(self) -> Ring:
        _refuse_home(self.where)
        if not os.path.lexists(self.where):
            return Ring([], self.where)
        folder, name = os.path.split(self.where)
        with typed("reading the keys", self.where):
            mode = os.lstat(self.where).st_mode
            with closing(RealVfs().root(folder)) as root:
                text = FileDocument(self._place(root), name).read()
        if mode & _OTHERS:
            raise NotOurs(
                f"others can read the keys in {self.where}",
                hint=f"chmod 600 {self.where}; if others may have read them, rotate",
                path=self.where,
            )
        return _parsed(text.data if text else None, self.where)

    def change(self, change: Callable[[Ring], list[Key]]) -> Ring:
        self.ring()
        folder, name = os.path.split(self.where)
        changed = Ring([], self.where)

        def put(old: bytes | None) -> bytes:
            nonlocal changed
            changed = Ring(change(_parsed(old, self.where)), self.where)
            keys = [
                {"id": key.id, "made_at": key.made_at, "key": as_text(key)} for key in changed.keys
            ]
            return pretty({"format": _FORMAT, "keys": keys})

        with (
            typed("writing the keys", self.where),
            closing(RealVfs().root(folder, create=True)) as root,
        ):
            FileDocument(self._place(root), name).update(put)
        return changed

    def _place(self, root: Any) -> Place:
        return Place(root, (), Tools(RealVfs(), self._clock, mask.nothing, str, _unheard))


def folder() -> str:
    """Where keys are unless the environment names another place."""
    from platformdirs import user_config_dir  # noqa: PLC0415 - a millisecond few calls pay

    return user_config_dir("holdfast")


def _refuse_home(path: str) -> None:
    """Keys in a home go wherever the home goes, and then seal nothing."""
    above = os.path.dirname(os.path.realpath(path))
    while True:
        if os.path.exists(os.path.join(above, SETTINGS)):
            raise UsageError(
                f"{path} is in the home {above}: a copy of the texts would include the keys",
                hint=f"let {WHERE} name a file elsewhere",
                path=path,
            )
        if above == os.path.dirname(above):
            return
        above = os.path.dirname(above)


def _parsed(data: bytes | None, where: str) -> Ring:
    if data is None:
        return Ring([], where)
    try:
        found = decode(data)
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise ValueError
        listed = cast("list[dict[str, str]]", found["keys"])
        return Ring([_key(each) for each in listed], where)
    except (DecodeError, BadValue, LookupError, TypeError, ValueError):
        raise ConfigError(
            f"{where} holds no keys, but something else",
            hint=f"restore it from a backup; or let {WHERE} name another file",
            path=where,
        ) from None


def _key(listed: dict[str, str]) -> Key:
    if not isinstance(cast("object", listed["key"]), str):
        raise TypeError
    key = from_text(listed["key"])._replace(made_at=str(listed.get("made_at", "")))
    if listed["id"] != key.id:
        raise ValueError
    return key


def _unheard(word: str, detail: str) -> None:
    """Outside of a home there is no audit."""
