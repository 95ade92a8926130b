"""Workspaces that an agent arranged to do harm: what lies outside is neither read nor changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.errors import BadName, Corrupt
from holdfast.git import call
from holdfast.workspace.safedir import Folder
from holdfast.workspace.workspace import Isolation, Measured, Workspace
from tests.jobs.desk import AGAIN, DONE, Desk
from tests.workspace.test_workspace import digest, git, wrapped

NOTHING = Measured([], [], [])
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    (made / "folder").mkdir(parents=True)
    git(made, "init", "-q", "-b", "trunk")
    (made / "app.py").write_text("print('one')\n")
    (made / "folder" / "file").write_text("one\n")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "first")
    return made


def opened(tmp_path: Path, source: Path, isolation: Isolation = "worktree") -> Workspace:
    folder = tmp_path / "home" / "jobs" / "j1"
    return Workspace(str(folder), isolation, job="j1", source=str(source))


def made(tmp_path: Path, source: Path, isolation: Isolation = "worktree") -> Workspace:
    workspace = opened(tmp_path, source, isolation)
    workspace.make()
    return workspace


def kept(workspace: Workspace) -> str:
    snapshot = workspace.snapshot()
    assert snapshot is not None
    return snapshot


# --- paths that lead out ----------------------------------------------------------------------


def index_of(*paths: str) -> bytes:
    """An index as an agent may write it; git does not look at the paths in it."""
    entries = b""
    for path in sorted(map(os.fsencode, paths)):
        about = struct.pack(">10I", *(0,) * 6, 0o100644, *(0,) * 3)
        entry = about + bytes(20) + struct.pack(">H", len(path)) + path
        entries += entry + bytes(8 - len(entry) % 8)
    said = b"DIRC" + struct.pack(">II", 2, len(paths)) + entries
    return said + hashlib.sha1(said, usedforsecurity=False).digest()


LEADING_OUT = (
    "../../victim",
    "folder/../../../victim",
    "./app.py",
    "folder//file",
    "../workspace/.git/HEAD",
    ".git/HEAD",
)


def test_a_forged_index_leads_nowhere(tmp_path: Path, source: Path) -> None:
    workspace = made(tmp_path, source)
    here = Path(workspace.path)
    start = kept(workspace)
    victim = Path(workspace.folder).parent / "victim"
    victim.write_text("precious")
    (here / ".git" / "index").write_bytes(index_of("app.py", *LEADING_OUT))
    assert "../../victim" in git(here, "ls-files"), "git tells what is in the index"
    assert workspace.changed_since(start) == NOTHING
    assert kept(workspace) == start
    assert workspace.restore(start) == NOTHING
    assert victim.read_text() == "precious"
    assert (here / ".git" / "HEAD").is_file()
    (here / ".git" / "index").write_bytes(index_of("app.py", *LEADING_OUT))
    (here / "new").write_text("new")
    later = kept(workspace)
    (Path(workspace.folder) / "repository.git" / "holdfast.cache").unlink()
    (here / "new").unlink()
    opened(tmp_path, source).restore(later)
    assert (here / "new").read_text() == "new"
    assert victim.read_text() == "precious"


@needs_bubblewrap
def test_a_sandboxed_agent_cannot_have_us_remove_files_outside(
    tmp_path: Path, source: Path
) -> None:
    workspace = made(tmp_path, source, "sandbox")
    start = kept(workspace)
    victim = Path(workspace.folder).parent / "victim"
    victim.write_text("precious")
    (Path(workspace.path) / "forged").write_bytes(index_of("../../victim"))
    moved = subprocess.run(wrapped(workspace, ["mv", "forged", ".git/index"]), check=False)
    assert moved.returncode == 0
    assert workspace.changed_since(start) == NOTHING
    workspace.restore(start)
    assert victim.read_text() == "precious"


DEEDS: dict[str, Callable[[Folder, str], object]] = {
    "put": lambda inner, path: inner.put(path, 0o100644, [b"x"], inner),
    "put_folder": lambda inner, path: inner.put_folder(path + "/x", inner),
    "remove": lambda inner, path: inner.remove(path, inner),
    "remove_if_empty": lambda inner, path: inner.remove_if_empty(path),
    "kind": lambda inner, path: inner.kind(path),
    "small": lambda inner, path: inner.small(path, 10),
    "these": lambda inner, path: list(inner.these([path])),
    "everything": lambda inner, path: list(inner.everything(path + "/x")),
}


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "a/..", ".", "a/./x", "", "a//x"])
@pytest.mark.parametrize("deed", DEEDS)
def test_a_path_that_leads_out_of_a_folder_is_refused(tmp_path: Path, path: str, deed: str) -> None:
    (tmp_path / "inner" / "a").mkdir(parents=True)
    (tmp_path / "x").write_text("precious")
    before = digest(tmp_path)
    with Folder(str(tmp_path / "inner")) as inner, pytest.raises(BadName):
        DEEDS[deed](inner, path)
    assert digest(tmp_path) == before


@pytest.mark.parametrize("target", ["a\0b", "", "x" * 5000])
def test_a_link_that_no_folder_can_have_is_told(tmp_path: Path, source: Path, target: str) -> None:
    blob = git(source, "hash-object", "-w", "--stdin", given=target)
    git(source, "update-index", "--add", "--cacheinfo", f"120000,{blob},link")
    git(source, "commit", "-qm", "with a link")
    with pytest.raises(Corrupt, match="link"):
        made(tmp_path, source)


# --- pipes ------------------------------------------------------------------------------------


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an hour until git is ended that waits for a pipe."""

    def waited(words: Sequence[str], patience: float) -> AssertionError:
        return AssertionError(f"waited for {words}")

    monkeypatch.setattr(call, "LONG", 10.0)
    monkeypatch.setattr(call, "too_slow", waited)


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("place", ["", "folder", "deep/er"])
def test_a_pipe_in_place_of_rules_holds_nothing_up(
    tmp_path: Path, source: Path, place: str
) -> None:
    (source / "folder" / ".gitignore").write_text("*.log\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "rules")
    workspace = made(tmp_path, source)
    here = Path(workspace.path)
    start = kept(workspace)
    (here / place).mkdir(parents=True, exist_ok=True)
    for name in (".gitignore", ".gitattributes"):
        (here / place / name).unlink(missing_ok=True)
        os.mkfifo(here / place / name)
    (here / "new").write_text("new")
    gone = ["folder/.gitignore"] if place == "folder" else []
    assert workspace.changed_since(start) == Measured(["new"], [], gone)
    os.mkfifo(here / ".gitignore")
    kept(workspace)
    os.mkfifo(here / ".gitignore")
    workspace.restore(start)
    assert workspace.changed_since(start) == NOTHING


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize(
    "trap", ["info/alternates", "pack/pack-1.idx", "elsewhere", "linked", "object"]
)
def test_a_pipe_among_the_objects_of_an_agent_holds_nothing_up(
    tmp_path: Path, source: Path, trap: str
) -> None:
    workspace = made(tmp_path, source)
    here = Path(workspace.path)
    start = kept(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    objects = here / ".git" / "objects"
    place = objects / trap
    if trap in ("elsewhere", "linked"):
        place = here / "trap" / "pack" / "pack-1.idx"
    elif trap == "object":
        place = objects / "00" / ("0" * 38)
    place.parent.mkdir(parents=True, exist_ok=True)
    if trap == "elsewhere":
        (objects / "info" / "alternates").write_text(f"{here}/trap\n")
    elif trap == "linked":
        shutil.rmtree(objects / "pack", ignore_errors=True)
        (objects / "pack").symlink_to(here / "trap" / "pack")
    else:
        place.unlink(missing_ok=True)
    os.mkfifo(place)
    assert workspace.changed_since(start).changed == ["app.py"]
    later = kept(workspace)
    workspace.restore(start)
    workspace.restore(later)
    assert (here / "app.py").read_text() == "print('two')\n"
    assert git(here, "fsck", "--no-dangling") == ""


@pytest.mark.usefixtures("hurry")
def test_a_source_with_a_pipe_in_place_of_rules_is_a_good_one(tmp_path: Path, source: Path) -> None:
    os.mkfifo(source / "folder" / ".gitignore")
    workspace = made(tmp_path, source)
    assert (Path(workspace.path) / "app.py").is_file()
    assert (source / "folder" / ".gitignore").is_fifo()


PIPING = """
import json, os, sys
json.load(sys.stdin)
if not os.path.lexists(".gitignore"):
    os.mkfifo(".gitignore")
with open("done", "w") as file:
    file.write("done")
print(json.dumps({"action": "COMPLETED", "evidence_files": ["done"],
                  "summary_for_supervisor": "It is done."}))
"""


@pytest.mark.usefixtures("hurry")
def test_a_job_goes_on_after_its_worker_made_a_pipe_of_the_rules(desk: Desk, source: Path) -> None:
    worker = desk.program(PIPING)
    desk.new("--worker", worker, "--supervisor", desk.script(AGAIN, DONE), "--source", str(source))
    desk.ran()
    assert desk.status() == "SUCCESS"
    assert (desk.workspace() / "done").read_text() == "done"


def test_a_gate_that_deletes_the_workspace_takes_nothing_of_the_work(
    desk: Desk, source: Path
) -> None:
    worker = desk.program(PIPING.replace('os.mkfifo(".gitignore")', "pass"))
    desk.new("--worker", worker, "--source", str(source), "--gate", "rm -rf ../workspace")
    desk.ran()
    assert desk.status() == "SUCCESS"
    assert "create mode 100644 done" in desk.ok("job", "diff", "demo")["data"]["changes"]


# --- rights of the user's own files -----------------------------------------------------------

UNPRIVILEGED = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]
    if os.getuid() == 0
    else []
)
needs_setpriv = pytest.mark.skipif(
    bool(UNPRIVILEGED) and shutil.which("setpriv") is None, reason="root may read everything"
)


def without_rights(deed: str) -> str:
    """What Python says that may read only what the rights of a file allow."""
    ran = subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-c", f"{PREAMBLE}\n{deed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


PREAMBLE = """
from holdfast.errors import NotOurs
from holdfast.workspace.workspace import Workspace

def tried(deed, *given):
    try:
        print(deed(*given))
    except NotOurs as error:
        print("NotOurs", error.path, bool(error.hint))
"""


@needs_setpriv
@pytest.mark.parametrize(
    "closed", [("file", 0), ("folder", 0o100), ("folder/inner", 0o300), ("", 0)]
)
def test_a_source_that_may_not_be_read_is_told_and_keeps_its_rights(
    tmp_path: Path, closed: tuple[str, int]
) -> None:
    own = tmp_path / "own"
    (own / "folder" / "inner").mkdir(parents=True)
    (own / "file").write_text("secret")
    (own / "folder" / "inner" / "x").write_text("secret")
    name, mode = closed
    (own / name).chmod(mode)
    before = {path: path.stat().st_mode for path in (own, *own.rglob("*"))}
    said = without_rights(f"""
tried(Workspace({str(tmp_path / "job")!r}, "directory", job="x", source={str(own)!r}).make)
""")
    assert said.split() == ["NotOurs", str(own / name).rstrip("/"), "True"]
    assert {path: path.stat().st_mode for path in before} == before


@needs_setpriv
def test_attachments_and_repositories_of_the_users_keep_their_rights(
    tmp_path: Path, source: Path
) -> None:
    given = tmp_path / "given"
    given.write_text("secret")
    given.chmod(0o200)
    own = tmp_path / "own"
    (own / "attachments").mkdir(parents=True)
    (own / "attachments").chmod(0o500)
    (own / "closed").write_text("secret")
    (own / "closed").chmod(0)
    (source / ".git" / "info").chmod(0o300)
    (source / ".git" / "index").chmod(0)
    watched = [
        given,
        own / "attachments",
        own / "closed",
        source / ".git/info",
        source / ".git/index",
    ]
    before = [path.stat().st_mode for path in watched]
    said = without_rights(f"""
job = Workspace({str(tmp_path / "job")!r}, "worktree", job="x", source={str(source)!r})
tried(job.make)
tried(job.attach, "given", {str(given)!r})
open({str(tmp_path / "fine")!r}, "w").close()
job = Workspace({str(tmp_path / "none")!r}, "none", job="x", source={str(own)!r})
tried(job.attach, "fine", {str(tmp_path / "fine")!r})
tried(job.text_of, "closed")
""")
    told = said.splitlines()
    assert told[:2] == ["None", f"NotOurs {given} True"]
    assert told[2].startswith("NotOurs") and told[3:] == ["None"]
    assert [path.stat().st_mode for path in watched] == before
    assert sorted(os.listdir(own)) == ["attachments", "closed"], "nothing is left half done"


# --- the sandbox ------------------------------------------------------------------------------


@needs_bubblewrap
def test_a_sandbox_is_made_for_a_home_behind_a_link(source: Path) -> None:
    # Not below /tmp, which is another one inside.
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        (Path(place) / "real").mkdir()
        (Path(place) / "link").symlink_to(Path(place) / "real")
        workspace = made(Path(place) / "link", source, "sandbox")
        script = "echo new > file && git log --format=%s && ! touch ../repository.git/x && pwd -P"
        ran = subprocess.run(
            wrapped(workspace, ["sh", "-c", script]),
            cwd=workspace.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout.splitlines() == ["first", os.path.realpath(workspace.path)], ran.stderr
        assert (Path(workspace.path) / "file").read_text() == "new\n"


@needs_bubblewrap
@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="no socket can be made in /run")
def test_a_sandboxed_program_reaches_no_socket_in_run(tmp_path: Path, source: Path) -> None:
    workspace = made(tmp_path, source, "sandbox")
    place = f"/run/holdfast-test-{os.getpid()}"
    connects = f"""
import socket
socket.getaddrinfo("localhost", 80)
for place in {place!r}, "/var" + {place!r}:
    try:
        socket.socket(socket.AF_UNIX).connect(place)
    except FileNotFoundError:
        continue
    raise SystemExit(1)
"""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        try:
            command = ["python3", "-c", connects]
            assert subprocess.run(command, check=False).returncode == 1
            assert subprocess.run(wrapped(workspace, command), check=False).returncode == 0
        finally:
            os.unlink(place)
