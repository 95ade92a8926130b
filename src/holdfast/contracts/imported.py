"""What a chained line says of the files of another system that were brought into a home."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.contracts.loglines import Digest
from holdfast.contracts.record import Count, Free, NonEmpty, Record, UtcTime


class ImportedFile(Record):
    path: NonEmpty
    """Where it was, below what was imported."""
    sha256: Digest
    bytes: Count
    name: NonEmpty | None = None
    """Of the copy that is kept of it, in the folder `imported`."""
    text_sha256: Digest | None = None
    """Of the text that was made of it, for one that people edit."""


class PastSession(Record):
    """A session as far as the other system wrote it down."""

    session_id: str | None
    started_at: UtcTime | None
    ended_at: UtcTime | None
    type: str | None = None
    outcome: str | None = None
    sources_archived: Count | None = None
    status: str | None = None
    stops: Count | None = None
    """How often a hook wrote that it ended."""


class Imported(Record):
    layout: NonEmpty
    name: str
    """What the agent is called there."""
    files: list[ImportedFile]
    documents: (
        Annotated[dict[str, Any], Free("report, session and metrics as the other system had them")]
        | None
    ) = None
    sessions: list[PastSession] | None = None
