"""Swarms and fractal memory: fmm, runs, manifests, conversation, events, index."""

from __future__ import annotations

from holdfast.contracts.kind import Kind

KINDS: tuple[Kind, ...] = ()
