"""What the tests of the dashboard share: one that is up, and somebody logged in."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from tests.ledger.shell import Shell
from tests.nursery import open_nursery
from tests.web.board import Board, a_home, up
from tests.web.browsing import ARGUMENTS, CHROMIUM


@pytest.fixture(scope="session", autouse=True)
def nursery() -> Iterator[None]:
    """Before there is a browser, which brings threads."""
    importlib.import_module("holdfast.web.server")
    with open_nursery():
        yield


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Of the home that is shown; a file of tests that needs another one has its own."""
    return a_home(tmp_path_factory.mktemp("board"))


@pytest.fixture(scope="module")
def board(shell: Shell) -> Iterator[Board]:
    with up(shell) as board:
        board.log_in()
        yield board


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as tools:
        found = tools.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()
