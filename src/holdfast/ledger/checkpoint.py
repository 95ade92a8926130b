"""Signed checkpoints: a promise about a ledger, kept outside of it.

The chain shows every change of a ledger but one: that somebody put a whole older ledger, stamps
and all, in its place.  A checkpoint names the newest line of each ledger and is signed with a
key that lies outside the home; whoever has one can ask later whether those lines are still there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.codec import DecodeError, decode, encode
from holdfast.errors import ConfigError, Corrupt, UsageError, typed
from holdfast.store.primitives import Cursor
from holdfast.store.vfs import RealVfs
from holdfast.userfile import existing, put_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VERSION = "1.0"
_KEY = "checkpoint.key"


class Head(NamedTuple):
    """The newest line of one ledger."""

    agent: str
    seq: int
    hash: str
    segment: str
    offset: int

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.seq, self.hash, self.segment, self.offset)


class Checkpoint(NamedTuple):
    signed_at: str
    heads: Sequence[Head]
    public_key: str
    """Hex of 32 bytes."""


def key_path() -> str:
    """Where the key lies: with the settings of the user, never in a home."""
    from platformdirs import user_config_dir  # noqa: PLC0415 - a millisecond few calls pay

    return os.path.join(user_config_dir("holdfast"), _KEY)


def signing_key(path: str) -> Ed25519PrivateKey:
    """The key at `path`, made if there is none."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )

    raw = existing(path)
    if raw is None:
        with typed("making a folder for the signing key", path):
            RealVfs().root(os.path.dirname(path), create=True).close()
        made = Ed25519PrivateKey.generate().private_bytes_raw().hex().encode()
        # UsageError: another process made one first, which is used.
        with suppress(UsageError):
            put_new(path, made, mode=0o600)
        raw = existing(path) or b""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(raw.decode()))
    except ValueError:
        raise ConfigError(
            f"{path} is no key", hint="move it away; the next checkpoint makes another", path=path
        ) from None


def sign(heads: Sequence[Head], now: str, key: Ed25519PrivateKey) -> dict[str, Any]:
    """The checkpoint as it is exported."""
    said = {
        "schema_version": VERSION,
        "signed_at": now,
        "heads": [head._asdict() for head in heads],
        "public_key": key.public_key().public_bytes_raw().hex(),
    }
    return {**said, "signature": key.sign(encode(said)).hex()}


def parse(data: bytes) -> Checkpoint:
    """A checkpoint whose signature holds; Corrupt if it does not, UsageError if it is none."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    try:
        found = cast("dict[str, Any]", decode(data))
        signature = bytes.fromhex(found.pop("signature"))
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found["public_key"]))
        heads = [
            Head(
                str(h["agent"]), int(h["seq"]), str(h["hash"]), str(h["segment"]), int(h["offset"])
            )
            for h in found["heads"]
        ]
        signed_at = str(found["signed_at"])
    except (DecodeError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            "not a checkpoint", hint="give the file that `holdfast ledger checkpoint` wrote"
        ) from None
    try:
        public.verify(signature, encode(found))
    except InvalidSignature:
        raise Corrupt(
            "the signature of the checkpoint does not hold", hint="it was changed"
        ) from None
    return Checkpoint(signed_at, heads, found["public_key"])
