"""An agent's own files: report, tasks, session, inbox, journal, metrics, memory.md."""

from __future__ import annotations

from holdfast.contracts.kind import Kind

KINDS: tuple[Kind, ...] = ()
