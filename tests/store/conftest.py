"""What the tests of the store share: as many examples as it takes to meet every branch."""

from __future__ import annotations

import pytest
from hypothesis import settings

from holdfast.store.commit import GroupCommit

settings.register_profile("store", settings.get_profile("holdfast"), max_examples=100)
settings.load_profile("store")


@pytest.fixture(params=["alone", "as a group"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single line takes a short way through the appender; the long one has to do the same."""
    if request.param == "as a group":
        monkeypatch.setattr(GroupCommit, "lead_alone", lambda *_: None)
