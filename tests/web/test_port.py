"""Two dashboards that come up at the same moment: each has a port of its own."""

from __future__ import annotations

import errno
import socket
from contextlib import closing

import pytest

from holdfast.errors import Busy, UsageError

pytest.importorskip("uvicorn")

from holdfast.web.server import bound


def test_two_that_come_up_at_once_get_two_ports() -> None:
    with closing(bound("127.0.0.1", None)) as first, closing(bound("127.0.0.1", None)) as second:
        assert first.getsockname() != second.getsockname()


def test_a_port_that_somebody_is_about_to_serve_on_is_taken() -> None:
    with closing(bound("127.0.0.1", 0)) as first, pytest.raises(Busy, match="taken"):
        bound("127.0.0.1", first.getsockname()[1])


def test_an_address_of_another_machine_is_told_as_that() -> None:
    with pytest.raises(UsageError, match="no address of this machine"):
        bound("192.0.2.1", None)


def test_a_port_that_is_not_for_everybody_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: socket.socket, place: object) -> None:
        raise PermissionError(errno.EACCES, f"no: {place}")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(UsageError, match="may not listen on port 80"):
        bound("127.0.0.1", 80)
