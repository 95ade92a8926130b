"""Campaigns as their users meet them: by the command line, on a repository of their own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.store.home import Home
from tests.improve.desk import COMMAND, make_source
from tests.jobs.desk import PYTHON, Desk
from tests.workspace.test_workspace import digest, git

AGENT = """
import json, os, re, subprocess, sys, time
request = json.load(sys.stdin)
with open(sys.argv[1]) as file:
    script = json.load(file)
role, at = request["role"], "%d/%s" % (request["round"], request["id"])
with open(sys.argv[1] + ".log", "a") as log:
    log.write(json.dumps([role, at]) + "\\n")
act = script.get(at, script.get(request["id"], script.get(role, {})))
if "factor" in act:
    with open("solve.py") as file:
        text = file.read()
    with open("solve.py", "w") as file:
        file.write(re.sub(r"FACTOR = .*", "FACTOR = %s" % act["factor"], text))
for name, text in act.get("write", {}).items():
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w") as file:
        file.write(text)
if "sh" in act:
    subprocess.run(["/bin/sh", "-c", act["sh"]], check=False)
time.sleep(act.get("sleep", 0))
if "reply" in act:
    print(act["reply"] if isinstance(act["reply"], str) else json.dumps(act["reply"]))
sys.exit(act.get("exit", 0))
"""
"""Does what a script says for its role, its name, or its name in a round."""


class Campaigns(Desk):
    """A home, a user's repository with a benchmark, and agents that follow a script."""

    def __init__(self, place: Path, files: Mapping[str, str] | None = None) -> None:
        super().__init__(place)
        self.source = make_source(place / "source", files)
        self.place, self.script_file = place, place / "script.json"
        (place / "agent.py").write_text(AGENT)
        self.agent = (
            f"command:{shlex.join([PYTHON, '-S', str(place / 'agent.py'), str(self.script_file)])}"
        )
        self.play({})
        Home.open(str(self.home), create=True, timezone="UTC").close()

    def play(self, script: Mapping[str, Any]) -> None:
        self.script_file.write_text(json.dumps(script))

    def asked(self, role: str = "executor") -> list[str]:
        """Who was asked in which round, as `1/executor_2`."""
        log = Path(f"{self.script_file}.log")
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        return [at for each, at in map(json.loads, lines) if each == role]

    def init(self, *words: str, benchmark: str = COMMAND, code: int = 0, trust: bool = True) -> Any:
        given = ["--trust"] if trust else []
        executor = [] if "--executor" in words else ["--executor", self.agent]
        ran = self(
            "improve", "init", "--topic", "sort", "--repo", str(self.source), "--benchmark",
            benchmark, "--sealed", "bench/", "--objective", "Sort faster", *executor, *given,
            *words, "--json",
        )  # fmt: skip
        assert ran.code == code, (ran.code, ran.out, ran.err)
        return ran.json() if ran.out else ran.error()

    def loop(self, *words: str, code: int = 0) -> Any:
        """`improve run sort …`: what it ends with."""
        ran = self("improve", "run", "sort", *words, "--json")
        assert ran.code == code, (ran.code, ran.out, ran.err)
        return ran.json()["data"] if ran.out else ran.error()

    def started(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """`improve run sort …` as a process."""
        command = [sys.executable, "-m", "holdfast", "--home", str(self.home), "improve", "run"]
        return subprocess.Popen(
            [*command, "sort", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=self.cwd,
        )

    def file(self, path: str) -> Any:
        return json.loads((self.home / "improve/sort" / path).read_bytes())

    def report(self, number: int) -> Any:
        return self.file(f"state/merge_reports/round_{number}.json")

    def history(self, number: int) -> Any:
        return self.file(f"state/iteration_history/round_{number}.json")

    def result(self, number: int, executor: int) -> Any:
        return self.file(f"state/benchmark_results/round_{number}/executor_{executor}.json")

    def journal(self, event: str | None = None) -> list[dict[str, Any]]:
        lines = (self.home / "improve/sort/journal.jsonl").read_bytes().splitlines()
        found = [json.loads(line) for line in lines]
        return [each for each in found if event in (None, each.get("event"))]

    def settings(self) -> Path:
        return self.home / "improve/sort/config/settings.json"

    def solve(self, ref: str = "improve/sort_faster") -> str:
        """The program as a branch has it."""
        return git(self.source, "show", f"{ref}:solve.py")

    def refs(self) -> set[str]:
        return set(git(self.source, "for-each-ref", "--format=%(refname)").splitlines())

    def seen(self) -> dict[str, Any]:
        """What the user's repository has but for our refs and new objects: byte for byte."""
        ours = ("refs/heads/improve", "refs/tags/archive", "refs/heads/review", "objects", "logs")
        kept = {
            name: each
            for name, each in digest(self.source).items()
            if not any(f"/.git/{part}" in name for part in ours)
            # Folders that got an entry of ours.
            and not name.endswith(("/.git/refs/heads", "/.git/refs/tags"))
        }
        return {
            **kept,
            "stash": git(self.source, "stash", "list"),
            "head": git(self.source, "rev-parse", "HEAD"),
        }
