"""The improvement loop: plans, results, briefs, histories, state, reports, settings."""

from __future__ import annotations

from holdfast.contracts.kind import Kind

KINDS: tuple[Kind, ...] = ()
