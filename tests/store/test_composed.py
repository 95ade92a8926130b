"""What is made of the primitives, on both backends."""

from __future__ import annotations

from holdfast.testing.composed import ComposedConformance
from tests.store.backends import InMemory, OnFiles


class TestHome(OnFiles, ComposedConformance):
    """On files."""


class TestMemory(InMemory, ComposedConformance):
    """In memory."""
