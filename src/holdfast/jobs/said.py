"""What an agent said, apart from what is done about it."""

from __future__ import annotations

from holdfast.codec import Record

_UNSAID = {"ERROR": "failed", "TIMEOUT": "late"}


def as_said(record: Record) -> Record:
    """Of a `judged` line: its action is what is done, its complaint why that is not what was said.

    `unsaid` is there if nobody said anything that counts, and the summary tells why.
    """
    complaint = record.get("complaint")
    said: Record = {
        "action": record.get("action") if complaint is None else "COMPLETED",
        "summary": record.get("summary_for_supervisor"),
        "complaint": complaint,
    }
    unsaid = _UNSAID.get(str(record.get("outcome")))
    if unsaid is None and record.get("violations"):
        unsaid = "refused"
    return said | ({"unsaid": unsaid} if unsaid else {})
