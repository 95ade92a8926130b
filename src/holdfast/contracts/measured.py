"""What was measured of a session, and what the agent says of the same."""

from __future__ import annotations

from holdfast.contracts.record import Count, Record, Seconds


class Measured(Record):
    """What the wrapper of a session saw for itself."""

    files_touched: list[str] | None = None
    """The first of them, below the folder in which the command ran."""
    files_touched_count: Count | None = None
    sources_archived: Count | None = None
    cpu_seconds: Seconds | None = None
    peak_memory_bytes: Count | None = None
    output_bytes: Count | None = None
    survivors_killed: Count | None = None
    tool_calls: Count | None = None
    tool_failures: Count | None = None


class Tools(Record):
    """What hooks told of the tools that an agent used."""

    calls: Count
    failed: Count
    by_name: dict[str, Count]
    wrote: list[str]


class Claimed(Record):
    """What the agent says, where somebody else measured it too."""

    sources_archived: Count | None = None
