"""Who sent a message, as far as that is known.

`from` is what the sender says, and so is `HOLDFAST_AGENT`.  `sent_by` is the agent in one of whose
sessions the sending process runs, and `proof` a code over the whole message under a key of the
home: a file that somebody put into an inbox has none.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from holdfast.codec import Record, encode
from holdfast.models.marks import in_one_line


def with_proof(record: Record, key: bytes) -> Record:
    return {**record, "proof": _proof(record, key)}


def believed(record: Record, key: bytes) -> Record:
    """A message without a `sent_by` that is not proven."""
    if hmac.compare_digest(str(record.get("proof")), _proof(record, key)):
        return record
    return {name: value for name, value in record.items() if name not in ("sent_by", "proof")}


def _proof(record: Record, key: bytes) -> str:
    told = {name: record[name] for name in sorted(record) if name != "proof"}
    return hmac.new(key, b"sent by\n" + encode(told), sha256).hexdigest()


def trust(record: Record) -> str:
    """What is known of the sender of a message that `believed` has seen."""
    claimed, seen = in_one_line(record.get("from")), record.get("sent_by")
    if seen is None:
        return f"claims to be from {claimed}; nothing confirms it"
    seen = in_one_line(seen)
    if seen.lower() == claimed.lower():
        return f"sent in a session of {seen}"
    return f"says it is from {claimed}, but was sent in a session of {seen}"
