"""What the tests of the dashboard share: one that is up, and somebody logged in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.board import Board, a_home, up


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with up(a_home(tmp_path_factory.mktemp("board"))) as board:
        board.log_in()
        yield board
