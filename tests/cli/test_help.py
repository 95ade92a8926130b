"""Help, version, completion, and what they load."""

import shlex

import pytest

from holdfast import __version__
from holdfast.cli.commands import parse
from holdfast.cli.main import main
from holdfast.ops.table import TABLE
from tests.cli.process import python, run, spawn

# Reads what was loaded before anything of its own is.
MODULES = """
import io, sys
from holdfast.cli.main import main
kept, sys.stdout = sys.stdout, io.StringIO()
main(sys.argv[1:])
print(*sys.modules, file=kept)
"""
HEAVY = {
    "asyncio", "cryptography", "dataclasses", "difflib", "fastapi", "jinja2", "json",
    "jsonschema", "orjson", "pydantic", "random", "subprocess", "tempfile", "tomllib", "yaml",
}  # fmt: skip
VERBS = {"holdfast.ops.home", "holdfast.ops.ledger"}


def loaded(*words: str) -> set[str]:
    return set(python(MODULES, *words).split())


@pytest.mark.parametrize("words", [["--help"], ["ledger", "--help"], ["--version"]])
def test_help_and_version_load_no_verb_and_nothing_heavy(words: list[str]) -> None:
    modules = loaded(*words)
    assert "click" in modules
    assert modules & (HEAVY | VERBS | {"click.shell_completion"}) == set()
    assert not any(name.startswith("holdfast.store") for name in modules)


def test_a_verb_loads_only_its_own_module() -> None:
    modules = loaded("--home", "/nonexistent/home", "ledger", "list")
    assert modules & VERBS == {"holdfast.ops.ledger"}
    assert not modules & {"asyncio", "fastapi", "jinja2", "pydantic", "click.shell_completion"}


def test_a_verb_does_not_load_its_siblings() -> None:
    assert run("toy", "--help").code == 0
    assert "absent" in run("toy", "--help").out
    assert run("toy", "echo", "x").code == 0


def test_the_help_fits_one_screen(capsys) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 58
    assert max(map(len, shown)) <= 100


def test_the_help_lists_verbs_and_nouns_with_theirs() -> None:
    shown = run("--help").out
    assert "  document     Toy document\n" in shown
    assert "  toy  Things to play with: write, list, echo, follow, absent\n" in shown


def test_the_help_of_a_verb_explains_everything_it_takes() -> None:
    ran = run("toy", "write", "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: holdfast toy write --agent AGENT [OPTIONS] TEXT\n")
    for part in (
        "  Toy write.\n",
        "  Nothing is kept: the arguments come back as they were understood.\n",
        "Arguments:\n  TEXT  Any text at all\n",
        "--agent AGENT                  Who did it  [required]\n",
        "--event info|task_start|error  What kind of event  [default: info]\n",
        "--data JSON|@FILE|-            More, as JSON\n",
        "--dry-run                      Only say what would be done\n",
        "\nSee `holdfast --help` for --home, --layout and --json.\n",
        "\nExample:\n  holdfast toy write x\n",
    ):
        assert part in ran.out
    assert "--layout PRESET" not in ran.out


@pytest.mark.parametrize("words", [["-h"], ["toy", "-h"], ["toy", "write", "-h"]])
def test_help_is_data_even_when_the_rest_is_missing(words: list[str]) -> None:
    ran = run(*words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: ")


@pytest.mark.parametrize(
    "words", [["--version"], ["toy", "--version"], ["toy", "write", "--version"]]
)
def test_the_version_is_told_anywhere(words: list[str]) -> None:
    assert run(*words) == (0, f"holdfast {__version__}\n", "")
    assert run(*words, "--json").json()["data"] == {"version": __version__}


@pytest.mark.parametrize("operation", TABLE.operations, ids=lambda each: each.name)
def test_the_example_of_every_verb_is_a_line_that_makes_sense(operation) -> None:
    program, *words = shlex.split(operation.example)
    assert program == "holdfast"
    request = parse(words, TABLE)
    assert not isinstance(request, str)
    assert request.operation == operation


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    ran = run("completion", shell)
    assert ran.code == 0
    assert "_HOLDFAST_COMPLETE" in ran.out


def completed(line: str) -> list[str]:
    variables = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    ran = spawn(env=variables)
    assert (ran.code, ran.err) == (0, "")
    return [answer.removeprefix("plain,") for answer in ran.out.split()]


def test_a_shell_is_told_what_could_come_next() -> None:
    assert completed("holdfast to") == ["toy"]
    assert completed("holdfast toy ") == ["write", "list", "echo", "follow", "absent"]
    assert completed("holdfast toy write --ag") == ["--agent"]
    assert completed("holdfast toy write --event t") == ["task_start"]
