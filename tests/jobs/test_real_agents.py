"""The real Claude Code and the real Codex under `run`, with our hooks, and as workers of a job.

    npm install -g @anthropic-ai/claude-code @openai/codex

Without them it is said that they were skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.provider import Turn, provider
from tests.ledger.shell import PROGRAM, Shell

EXAMPLES = Path(__file__).parents[2] / "examples"
WRONG, RIGHT = "int(count) + int(price)", "int(count) * int(price)"
CARELESS = f"sed -i 's/{WRONG}/{WRONG.replace('+', '-')}/' tally.py"
MEND = f"sed -i 's/int(count) [+-] int(price)/{RIGHT}/' tally.py"


def needed(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "rio", "--timezone", "UTC")
    return made


@pytest.fixture
def codex_home() -> Iterator[Path]:
    # In its sandbox /tmp is another one, and it has to find itself there.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        yield Path(place)


def claude(url: str, shell: Shell) -> dict[str, str]:
    bin_of_holdfast = Path(PROGRAM).parent
    return {
        "PATH": f"{bin_of_holdfast}:{shell.environment()['PATH']}",
        "HOLDFAST_HOME": str(shell.home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "a key for nobody",
        "CLAUDE_CONFIG_DIR": str(shell.user / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def codex(url: str, shell: Shell, home: Path) -> dict[str, str]:
    lines = (
        'model = "gpt-5-codex"',
        'model_provider = "ours"',
        "[model_providers.ours]",
        'name = "ours"',
        f'base_url = "{url}/v1"',
        'wire_api = "responses"',
        'env_key = "KEY_FOR_NOBODY"',
    )
    (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"CODEX_HOME": str(home), "KEY_FOR_NOBODY": "x", "HOLDFAST_HOME": str(shell.home)}


def said(action: str, summary: str) -> Turn:
    told = {"action": action, "evidence_files": ["tally.py"], "summary_for_supervisor": summary}
    return {"text": f"Here it is.\n```json\n{json.dumps(told)}\n```"}


def repository(place: Path) -> Path:
    place.mkdir()
    for file in (EXAMPLES / "job-fix-test/repository").glob("*.py"):
        shutil.copy(file, place)
    who = ("-c", "user.name=you", "-c", "user.email=you@example.org")
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "A tally"]):
        subprocess.run(["git", "-C", place, *words], check=True)
    return place


def mended(shell: Shell, source: Path, worker: str, env: dict[str, str], *more: str) -> str:
    """The change that a job comes to; the example's spec, whose gate has the last word."""
    spec = str(EXAMPLES / "job-fix-test/job.yaml")
    words = ("--id", "mend", "--source", str(source), "--isolation", "worktree", "--tolerant")
    made = shell("job", "new", spec, *words, "--worker", worker, *more, env=env)
    assert made.code == 0, made.err
    ran = shell("job", "run", "mend", env=env)
    assert ran.code == 0, ran.out + ran.err
    assert "mend is SUCCESS" in ran.out
    return shell("job", "diff", "mend", "--patch", env=env).out


@needed("claude")
def test_claude_code_is_a_session_with_all_that_its_hooks_tell(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio")
    shell("session", "end", "--agent", "rio", "--outcome", "completed", "--handoff", "mind the gap")
    (shell.cwd / ".claude").mkdir()
    shutil.copy(EXAMPLES / "claude-code/settings.json", shell.cwd / ".claude")
    make = {"command": "echo hello > made.txt", "description": "make a file"}
    turns = [{"tool": "Bash", "input": make}, {"text": "I made\na file."}]
    with provider(turns) as (url, asked):
        words = ("claude", "-p", "Make a file", "--output-format", "json", "--allowedTools=Bash")
        ran = shell("run", "--agent", "rio", "--", *words, env=claude(url, shell))
    assert ran.code == 0, ran.out + ran.err
    assert "Handoff: mind the gap" in asked[0]
    session = json.loads((shell.home / "state/rio/session.json").read_bytes())
    assert (session["status"], session["tokens_used"]) == ("completed", 2560)
    assert session["cost_usd"] > 0
    assert session["measured"]["files_touched"] == ["made.txt"]
    assert session["tools"]["calls"] == 1
    report = json.loads((shell.home / "state/rio/report.json").read_bytes())
    assert report["summary"] == "I made a file."


@needed("claude")
def test_claude_code_mends_a_repository_and_the_gate_decides(shell: Shell, tmp_path: Path) -> None:
    turns = [
        {"tool": "Bash", "input": {"command": CARELESS, "description": "mend"}},
        said("COMPLETED", "It is mended."),
        {"tool": "Bash", "input": {"command": MEND, "description": "mend"}},
        said("COMPLETED", "The price is taken as often as the line says."),
        said("COMPLETED", "The change is right."),
    ]
    source = repository(tmp_path / "source")
    with provider(turns) as (url, asked):
        worker = "command:claude -p --permission-mode acceptEdits --allowedTools=Bash"
        reviewer = ("--supervisor", "command:claude -p")
        patch = mended(shell, source, worker, claude(url, shell), *reviewer)
    assert "not accepted" in asked[2], "the second try is told what was wrong with the first"
    assert f"+    return {RIGHT}" in patch
    assert WRONG in (source / "tally.py").read_text(encoding="utf-8")
    shown = shell("job", "show", "mend", "--json").json()["data"]
    assert (shown["calls"], shown["unknown_costs"]) == (3, 0)
    assert shown["cost_usd"] > 0


@needed("codex")
def test_codex_mends_a_repository_in_its_own_sandbox(
    shell: Shell, tmp_path: Path, codex_home: Path
) -> None:
    turns = [
        {"tool": "exec_command", "input": {"cmd": MEND}},
        said("COMPLETED", "The price is taken as often as the line says."),
        said("COMPLETED", "The change is right."),
    ]
    source = repository(tmp_path / "source")
    with provider(turns) as (url, _):
        worker = "command:codex exec --sandbox workspace-write"
        reviewer = ("--supervisor", "command:codex exec")
        patch = mended(shell, source, worker, codex(url, shell, codex_home), *reviewer)
    assert f"+    return {RIGHT}" in patch
    shown = shell("job", "show", "mend", "--json").json()["data"]
    assert (shown["calls"], shown["unknown_costs"]) == (2, 2)
