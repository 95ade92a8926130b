"""Two dashboards that come up at the same moment: each has a port of its own."""

from __future__ import annotations

from contextlib import closing

import pytest

from holdfast.errors import Busy

pytest.importorskip("uvicorn")

from holdfast.web.server import bound


def test_two_that_come_up_at_once_get_two_ports() -> None:
    with closing(bound("127.0.0.1", None)) as first, closing(bound("127.0.0.1", None)) as second:
        assert first.getsockname() != second.getsockname()


def test_a_port_that_somebody_is_about_to_serve_on_is_taken() -> None:
    with closing(bound("127.0.0.1", 0)) as first, pytest.raises(Busy, match="taken"):
        bound("127.0.0.1", first.getsockname()[1])
