"""Texts that only who has the key can read, as strings that stand where the text stood.

    [sealed v1 3f9a2b1c c2VhbGVk IGFuZCBz …]

is the version, the id of the key and, in base64, twelve bytes by chance and the ciphertext.  It is
bound to a place, such as `state/rio/memory.jsonl#12 content`: in another line, file or field it
does not open.  It comes in words of eight letters, for what takes secrets out of records looks for
longer ones and would take a ciphertext for one.

Pure: where keys come from is in `keys`.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import ConfigError, Corrupt, NoKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

VERSION = "v1"
SECRET_BYTES = 32
_NONCE, _TAG, _WORD = 12, 16, 8
_FORM = re.compile(r"\[sealed (v[0-9]{1,3}) ([0-9a-f]{8})((?: [A-Za-z0-9+/]{1,8})+)\]")


class Key(NamedTuple):
    secret: bytes
    made_at: str = ""

    @property
    def id(self) -> str:
        """Told by the key alone, so that a wrong key never has the id of the right one."""
        return blake2b(self.secret, digest_size=4, person=b"holdfast key id").hexdigest()

    def __repr__(self) -> str:
        return f"Key({self.id})"


class Ring:
    """The available keys, oldest first; the last one seals, all of them open."""

    def __init__(self, keys: Sequence[Key], where: str) -> None:
        self.keys, self.where = tuple(keys), where
        self._ciphers: dict[str, AESGCMSIV] = {}

    @property
    def current(self) -> Key:
        if not self.keys:
            raise NoKey(
                f"there is no key to seal with: {self.where} holds none",
                hint="`holdfast key new` makes one; or HOLDFAST_KEYS says where yours are",
            )
        return self.keys[-1]

    def seal(self, text: str, place: str) -> str:
        """`text` for holders of the current key."""
        key, nonce = self.current, token_bytes(_NONCE)
        sealed = self._cipher(key).encrypt(
            nonce, text.encode("utf-8", "surrogatepass"), _bound(key.id, place)
        )
        return _form(key.id, nonce + sealed)

    def open(self, sealed: str, place: str) -> str:
        """The text; NoKey if its key is not here, Corrupt if it was changed or moved."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - few processes open

        found = _FORM.fullmatch(sealed)
        if found is None:
            raise _does_not_open(place)
        version, id, data = found.groups()
        if version != VERSION:
            raise NoKey(
                f"{place} is sealed in a form ({version}) that this Holdfast does not know",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        raw = _decoded(data)
        if len(raw) < _NONCE + _TAG or _form(id, raw) != sealed:
            raise _does_not_open(place)
        key = next((each for each in self.keys if each.id == id), None)
        if key is None:
            raise NoKey(
                f"{place} is sealed with the key {id}, and {self.where} does not hold it",
                hint="HOLDFAST_KEYS says in which file keys are, HOLDFAST_KEY is one; "
                "`holdfast key list` shows the available ones",
            )
        try:
            text = self._cipher(key).decrypt(raw[:_NONCE], raw[_NONCE:], _bound(id, place))
        except InvalidTag:
            raise _does_not_open(place) from None
        return text.decode("utf-8", "surrogatepass")

    def digest(self, text: str) -> str:
        """A name for a text, which cannot be guessed at without the key."""
        data = text.encode("utf-8", "surrogatepass")
        digest = blake2b(data, digest_size=32, key=self.current.secret, person=b"holdfast digest")
        return digest.hexdigest()

    def _cipher(self, key: Key) -> AESGCMSIV:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV  # noqa: PLC0415

        cipher = self._ciphers.get(key.id)
        if cipher is None:
            try:
                cipher = self._ciphers[key.id] = AESGCMSIV(key.secret)
            except UnsupportedAlgorithm:
                raise ConfigError(
                    "the OpenSSL under `cryptography` has no AES-GCM-SIV",
                    hint="install `cryptography` from its wheel, or with OpenSSL 3.2 or newer",
                ) from None
        return cipher


def opened_in(text: str, open: Callable[[str], str]) -> str:
    """`text` with what `open` makes of each sealed text in it."""
    return _FORM.sub(lambda found: open(found[0]), text) if "[sealed " in text else text


def _bound(id: str, place: str) -> bytes:
    return f"holdfast {VERSION} {id} {place}".encode("utf-8", "surrogatepass")


def _form(id: str, raw: bytes) -> str:
    data = b64encode(raw).decode().rstrip("=")
    words = " ".join(data[at : at + _WORD] for at in range(0, len(data), _WORD))
    return f"[sealed {VERSION} {id} {words}]"


def _decoded(words: str) -> bytes:
    data = words.replace(" ", "")
    try:
        return b64decode(data + "=" * (-len(data) % 4))
    except ValueError:
        return b""


def _does_not_open(place: str) -> Corrupt:
    return Corrupt(
        f"{place} does not open: its sealed text was changed, or stood elsewhere",
        hint="`holdfast check` shows what was changed; restore the file from a backup",
    )
