"""The ledger: entries, status, session summaries."""

from __future__ import annotations

from holdfast.contracts.kind import Kind

KINDS: tuple[Kind, ...] = ()
