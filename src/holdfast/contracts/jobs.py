"""Jobs: requests, responses, manifests, histories and recovery points."""

from __future__ import annotations

from holdfast.contracts.kind import Kind

KINDS: tuple[Kind, ...] = ()
