"""Jobs as their users meet them: by the command line, in this process or as another one."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdfast.cli.main import main
from holdfast.testing import Turner
from tests.ledger.shell import Ran, Shell, Verbs

PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable
"""One that is there in the sandbox too, where /tmp is another one."""
DONE = {"action": "COMPLETED", "evidence_files": [], "summary_for_supervisor": "It is done."}
AGAIN = {**DONE, "action": "RETRY", "summary_for_supervisor": "The total is wrong."}
STUCK = {**DONE, "action": "STUCK", "summary_for_supervisor": "Which port is meant?"}


class Desk:
    """A home, and a user who works on jobs in it."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        self.shell = Shell(place)
        self.home, self.cwd = self.shell.home, self.shell.cwd
        self._scripts = 0

    def __call__(self, *words: str) -> Ran:
        """`holdfast --home HOME words…` in this process."""
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            code = main(["--home", str(self.home), *words])
        return Ran(code, out.getvalue(), err.getvalue())

    def ok(self, *words: str) -> Any:
        """What a call that has to work says in JSON."""
        ran = self(*words, "--json")
        assert ran.code == 0, ran.out + ran.err
        return ran.json()

    def refused(self, *words: str, code: int = 1, says: str = "") -> dict[str, Any]:
        """The error of a call that has to fail, which changes nothing."""
        before = self.digest()
        ran = self(*words, "--json")
        assert ran.code == code, (ran.code, ran.out, ran.err)
        assert ran.out == ""
        error = ran.error()
        assert says in error["message"], error
        assert error["hint"], error
        assert self.digest() == before
        return error

    def script(self, *replies: object) -> str:
        """A model that says these, one after another."""
        self._scripts += 1
        path = self.cwd / f"script-{self._scripts}.json"
        path.write_text(json.dumps({"replies": replies}), encoding="utf-8")
        return f"scripted:{path}"

    def program(self, code: str, *more: str) -> str:
        """A command that runs this Python."""
        self._scripts += 1
        path = self.cwd / f"program-{self._scripts}.py"
        path.write_text(code, encoding="utf-8")
        return f"command:{shlex.join([PYTHON, '-S', '-E', str(path), *more])}"

    def spec(self, **fields: Any) -> str:
        self._scripts += 1
        path = self.cwd / f"spec-{self._scripts}.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        return str(path)

    def new(self, *words: str, id: str = "demo") -> Any:
        return self.ok("job", "new", "--prompt", "Say hello", "--id", id, *words)["data"]

    def show(self, id: str = "demo") -> Any:
        return self.ok("job", "show", id)["data"]

    def status(self, id: str = "demo") -> str:
        return self.show(id)["status"]

    def ran(self, id: str = "demo", code: int = 0) -> Any:
        """What `job run` ends with."""
        ran = self("job", "run", id, "--json")
        assert ran.code == code, (ran.code, ran.out, ran.err)
        return ran.json()["data"]

    def step(self, reply: object, id: str = "demo") -> Ran:
        """Take a reply from a person."""
        text = reply if isinstance(reply, str) else json.dumps(reply)
        file = self.cwd / "reply.txt"
        file.write_bytes(text.encode())
        return self("job", "step", id, "--response", f"@{file}", "--json")

    def document(self, name: str, id: str = "demo") -> Any:
        return json.loads((self.home / "jobs" / id / name).read_bytes())

    def manifest(self, id: str = "demo") -> Any:
        return self.document("manifest.json", id)

    def calls(self, id: str = "demo") -> list[dict[str, Any]]:
        """The interactions of jobHistory.json."""
        return self.document("jobHistory.json", id)["interactions"]

    def lines(self, id: str = "demo", event: str | None = None) -> list[dict[str, Any]]:
        """What history.jsonl says."""
        data = (self.home / "jobs" / id / "history.jsonl").read_bytes()
        found = [json.loads(line) for line in data.splitlines()]
        return [each for each in found if event is None or each.get("event") == event]

    def workspace(self, id: str = "demo") -> Path:
        return Path(self.show(id)["workspace"])

    def queue(self) -> list[str]:
        return [row["job"] for row in self.ok("job", "queue")["rows"]]

    def index(self) -> Any:
        return json.loads((self.home / "jobs/index.json").read_bytes())

    def audit(self, id: str = "demo") -> list[tuple[str, int | None]]:
        """Kind and call of each entry about a job."""
        rows = self.ok("audit", "list", "--job", id)["rows"]
        return [(row["kind"], row.get("sequence")) for row in rows]

    def digest(self) -> str:
        """Of every byte below the home that tells of jobs."""
        found = sha256()
        for file in sorted((self.home / "jobs").rglob("*")):
            if file.is_file() and not file.is_symlink() and not _is_passing(file):
                found.update(f"{file.relative_to(self.home)}\n".encode() + file.read_bytes())
        return found.hexdigest()

    def verbs(self, clock: Turner) -> Verbs:
        """The same home, by a clock that the test turns."""
        return Verbs(str(self.home), clock)


def _is_passing(file: Path) -> bool:
    """Locks and leases change when somebody looks."""
    return file.suffix in (".lock", ".lease") or file.name.startswith(".")
