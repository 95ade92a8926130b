"""What an agent said, apart from what is done about it."""

from __future__ import annotations

from holdfast.codec import Record

_UNSAID = {"ERROR": "failed", "TIMEOUT": "late"}
_INSTEAD = {"failed": "failed", "late": "no answer in time", "refused": "refused"}


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


def answer_in(response: Record) -> str:
    """Of a call that has ended: the action that was said, or what there was instead of one."""
    told = {"outcome": response.get("status"), "complaint": response.get("overruled")}
    said = as_said({**response, **told})
    if "unsaid" in said:
        return _INSTEAD[said["unsaid"]]
    return str(said["action"]) + ("" if said["complaint"] is None else ", not accepted")
