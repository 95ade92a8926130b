"""What the tests of the store share: as many examples as it takes to meet every branch."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("store", settings.get_profile("holdfast"), max_examples=100)
settings.load_profile("store")
