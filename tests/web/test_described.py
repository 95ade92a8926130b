"""The OpenAPI description is true: whatever is asked, the answer is one that it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.ops.parameter import parameters
from holdfast.ops.table import TABLE
from tests.ledger.shell import Shell
from tests.web.board import Board, a_home, up

HTTP = {each.name: each for each in TABLE.seen_by("http").operations}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
SENSIBLE, SENSELESS, STRANGERS = 3, 2, 1
"""Requests for each verb: that it could take, that it could not, and by somebody unknown."""


class Asker:
    """Requests made up from the description, to a home in which something happened."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.described = schemathesis.openapi.from_dict(board.get("/api").json())
        self.session = requests.Session()
        self.session.trust_env = False
        self.known = _words(board.shell)

    def ask(self, case: Case, token: str | None) -> int:
        headers = {"x-holdfast-token": token} if token is not None else {}
        answer = case.call(
            f"http://localhost:{self.board.port}", session=self.session, headers=headers
        )
        case.validate_response(answer, checks=CHECKS, headers=headers)
        return answer.status_code

    def cases(self, name: str, mode: GenerationMode) -> st.SearchStrategy[Case]:
        path = f"/api/{name.replace(' ', '/')}"
        (method,) = self.described[path]
        return self.described[path][method].as_strategy(generation_mode=mode)

    @st.composite
    @staticmethod
    def sensible(draw: st.DrawFn, self: Asker, name: str) -> Case:
        """Requests about things that are there: names from nowhere get no further than a 404."""
        case = draw(self.cases(name, GenerationMode.POSITIVE))
        for given_ in (case.query, case.body):
            for word in sorted(set(given_) & set(self.known)) if isinstance(given_, dict) else ():
                if draw(st.integers(0, 5)):
                    given_[word] = draw(st.sampled_from(self.known[word]))
        return case


def _words(shell: Shell) -> dict[str, list[Any]]:
    """For arguments of these names, what stands in the home or makes sense."""
    for number in range(3):
        shell("task", "add", "--agent", "rio", "--type", "research", f"Task {number}")
        shell("inbox", "send", "--from", "clay", "--to", "rio", "--subject", "s", f"{number}")
    shell("memory", "note", "--agent", "rio", "--section", "Dead Ends", "nothing there")
    shell("inbox", "take", "--agent", "rio", "--limit", "2")
    letters = shell("--json", "inbox", "list", "--agent", "rio").rows()
    tasks = shell("--json", "task", "list", "--agent", "rio").rows()
    sessions = shell("--json", "session", "list").rows()
    assert letters and tasks and sessions
    return {
        "agent": ["rio", "clay"],
        "to": ["rio", "rio,clay", "all"],
        "from": ["rio", "leo"],
        "subject": ["About it"],
        "session": [row["session_id"] for row in sessions],
        "id": [row["id"] for row in (*letters, *tasks)],
        "event": ["info", "error", "task_start", "finding"],
        "data": ['{"status":"failure"}', "{}", "[]"],
        "section": ["Dead Ends", "open questions"],
        "counter": [["claims_accepted=3"], ["a=-1", "b"]],
        "source": ["ci", "user"],
        "since": ["2h", "2026-11-01", "2026-11-01T08:00"],
        "until": ["1s", "2026-11-01"],
        "expires": ["2h", "2199-01-01"],
        "timeout": ["90m", "0s"],
        "lease": ["1s", "10m"],
        "older_than": ["0s", "30d", "9999999d"],
        "day": ["today", "yesterday", "2026-11-15"],
        "limit": [0, 1, 3],
        "model": ["scripted:echo"],
    }


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with up(a_home(tmp_path_factory.mktemp("described"))) as board:
        board.log_in()
        asker = Asker(board)
        yield asker
        asker.session.close()
    assert not any(b"Error" in line or b"Traceback" in line for line in board.said), board.said


def so_often(times: int) -> settings:
    return settings(
        max_examples=times,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("name", list(HTTP))
def test_every_answer_is_one_that_the_description_names(asker: Asker, name: str) -> None:
    @seed(6)
    @so_often(SENSIBLE)
    @given(Asker.sensible(asker, name))
    def sensible(case: Case) -> None:
        asker.ask(case, asker.board.token)

    @seed(6)
    @so_often(SENSELESS)
    @given(asker.cases(name, GenerationMode.NEGATIVE))
    def senseless(case: Case) -> None:
        asker.ask(case, asker.board.token)

    @seed(6)
    @so_often(STRANGERS)
    @given(Asker.sensible(asker, name), st.sampled_from([None, "", "x" * 43]))
    def by_strangers(case: Case, token: str | None) -> None:
        assert asker.ask(case, token) == 401

    sensible()
    if parameters(HTTP[name].load()):  # nothing can be wrong with what is not asked for
        senseless()
    by_strangers()


def test_no_verb_takes_the_name_of_a_file_from_afar(asker: Asker, tmp_path: Path) -> None:
    for verb in HTTP.values():
        named = [each for each in parameters(verb.load()) if each.metavar in ("FILE", "DIR")]
        assert all(each.is_path for each in named), verb.name
    session = asker.known["session"][0]
    there = tmp_path / "there.md"
    answer = asker.board.post("/api/ledger/summary", {"session": session, "out": str(there)})
    assert answer.status == 422
    assert not there.exists()
    told = asker.board.get("/api/ledger/verify?against=/etc/passwd").json()
    assert told == asker.board.get("/api/ledger/verify").json() | {"as_of": told["as_of"]}


def test_damage_that_was_found_is_told_and_is_no_failure_of_the_server(asker: Asker) -> None:
    asker.board.shell("init", "vida")
    file = asker.board.shell.home / "state" / "vida" / "tasks.json"
    file.write_bytes(b"{ not json")
    answer = asker.board.get("/api/task/show?agent=vida&id=task-001")
    assert (answer.status, answer.json()["error"]["code"]) == (409, "corrupt")
