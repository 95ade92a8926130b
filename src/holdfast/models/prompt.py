"""A request as one text, for programs that take only one.

A lone message is the text itself.  Where there are more, each stands under a rule with its role,

    Answer the last message of this conversation.

    === system ===
    Be brief.

    === user ===
    How are you?

and a rule is longer than any that a message has in it, so that none can pose as two.  A schema is
told at the end.
"""

from __future__ import annotations

import re

from holdfast.codec import encode
from holdfast.models.protocol import Request

_RULE = re.compile(r"^=+", re.MULTILINE)
_SHORTEST = 3
_LARGEST_SCHEMA = 1 << 20


def as_one_text(request: Request) -> str:
    messages = request.messages
    if len(messages) == 1 and messages[0].role == "user":
        parts = [messages[0].text]
    else:
        rule = "=" * max([_SHORTEST, *(_longest_rule(message.text) + 1 for message in messages)])
        parts = ["Answer the last message of this conversation."]
        parts += [f"{rule} {message.role} {rule}\n{message.text}" for message in messages]
    if request.schema is not None:
        schema = encode(dict(request.schema), limit=_LARGEST_SCHEMA).decode()
        parts.append(
            "Answer with one JSON value that meets this JSON Schema, and with nothing else: "
            f"no explanation, no code fence.\n{schema}"
        )
    text = "\n\n".join(parts)
    # What cannot be written as UTF-8 cannot be given to a program.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _longest_rule(text: str) -> int:
    # Few texts have any, and to look for one line end after another takes ten times as long.
    if "\n=" not in text and text[:1] != "=":
        return 0
    return max(map(len, _RULE.findall(text)), default=0)
