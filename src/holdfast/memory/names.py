"""Names of topics.

One rule holds for every topic that is written: it is `/`, the root, or 1 to 32 names joined by
`/`, at most 1,000 characters in all; a name is not empty, not `.`, `..` or `__data__`, and has no
control character and no lone surrogate.  `retrieval/ivf` is kept for the index.  Anything else is
refused; nothing is escaped, so a topic reads back as it was written.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.errors import BadName

DATA, ROOT = "__data__", "/"
MOST_NAMES, LONGEST = 32, 1_000
INDEX = "retrieval/ivf"
"""The topic of the index of vectors, below it a node for each dimension and size."""
UNPLACED = "unplaced"
"""Where a line is shown whose topic breaks the rule: written by hand, or by another program."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RESERVED = frozenset({"", ".", "..", DATA})


@lru_cache(maxsize=4096)
def fault(topic: str) -> str:
    """What breaks the rule; empty if nothing does."""
    names = [] if topic == ROOT else topic.split("/")
    if len(topic) > LONGEST:
        return f"it has {len(topic)} characters, at most {LONGEST}"
    if len(names) > MOST_NAMES:
        return f"it has {len(names)} names, at most {MOST_NAMES}"
    if found := _CONTROL.search(topic):
        return f"it has the control character U+{ord(found[0]):04X}"
    if reserved := _RESERVED.intersection(names):
        return f"{min(reserved)!r} cannot be a name"
    return f"{INDEX} is kept for the index" if is_under(topic, INDEX) else ""


def checked(topic: str) -> str:
    """The topic, or BadName."""
    if why := fault(topic):
        raise BadName(
            f"not a topic: {topic[:80]!r}: {why}", hint="names joined by /, as in decisions/fees"
        )
    return topic


def is_under(topic: str, above: str) -> bool:
    """Whether a topic is `above` or below it."""
    return above in (ROOT, topic) or topic.startswith(f"{above}/")
