"""Jobs that are over, packed; histories that have grown; and what a job changed."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tracemalloc
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import zstandard

from holdfast.errors import StorageError
from holdfast.jobs import history, packing
from holdfast.jobs.job import Job
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.workspace.workspace import Workspace
from tests.jobs.desk import AGAIN, DONE, Desk

WORKER = """
import json, pathlib
pathlib.Path("made.txt").write_text("by the worker\\n")
print(json.dumps({"action": "COMPLETED", "evidence_files": ["made.txt"],
                  "summary_for_supervisor": "It is made."}))
"""


def git(where: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(where), "-c", "user.name=A", "-c", "user.email=a@b", *words],
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "source"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    (made / "kept.txt").write_text("as it was\n")
    git(made, "add", ".")
    git(made, "commit", "-qm", "first")
    return made


def finished(desk: Desk, source: Path) -> None:
    desk.new("--worker", desk.program(WORKER), "--source", str(source))
    assert desk.ran()["status"] == "SUCCESS"


def state_of(source: Path) -> tuple[str, ...]:
    words = (("rev-parse", "HEAD"), ("branch", "-a"), ("status", "--porcelain"), ("stash", "list"))
    return tuple(git(source, *each) for each in words)


def segments(desk: Desk, id: str = "demo") -> list[str]:
    return sorted(each.name for each in (desk.home / "jobs" / id).glob("history.*"))


# --- what a job changed ---------------------------------------------------------------------


def test_the_patch_applies_to_what_the_job_started_from(desk: Desk, source: Path) -> None:
    finished(desk, source)
    assert "made.txt" in desk("job", "diff", "demo").out
    patch = desk.ok("job", "diff", "demo", "--patch")["data"]["patch"]
    done = subprocess.run(["git", "-C", source, "apply", "-"], input=patch.encode(), check=False)
    assert done.returncode == 0
    assert (source / "made.txt").read_text() == "by the worker\n"


WINDOWS = """
import json, pathlib
pathlib.Path("old.txt").write_bytes(b"one\\r\\nTWO\\r\\n")
pathlib.Path("new.txt").write_bytes(b"a\\r\\n\\x0c\\x1b[1mb\\r\\n")
print(json.dumps({"action": "COMPLETED", "evidence_files": [], "summary_for_supervisor": "Done."}))
"""


def test_a_patch_in_a_file_applies_to_the_byte(desk: Desk, source: Path) -> None:
    (source / "old.txt").write_bytes(b"one\r\ntwo\r\n")
    git(source, "add", ".")
    git(source, "commit", "-qm", "Lines of Windows")
    desk.new("--worker", desk.program(WINDOWS), "--source", str(source))
    desk.ran()
    patch = desk.cwd / "result.patch"
    with patch.open("wb") as file:
        subprocess.run(
            desk.shell.command(["job", "diff", "demo", "--patch"]),
            env=desk.shell.environment(),
            stdout=file,
            check=True,
        )
    git(source, "apply", str(patch))
    assert (source / "old.txt").read_bytes() == b"one\r\nTWO\r\n"
    assert (source / "new.txt").read_bytes() == b"a\r\n\x0c\x1b[1mb\r\n"


def test_a_diff_since_a_recovery_point_leaves_out_what_was_before(desk: Desk, source: Path) -> None:
    desk.new(
        "--worker", desk.program(WORKER), "--source", str(source), "--supervisor", "scripted:echo"
    )
    desk.ok("job", "step", "demo")
    point = desk.show()["points"][-1]
    assert "made.txt" not in desk("job", "diff", "demo", "--since", point).out
    desk.refused("job", "diff", "demo", "--since", "nowhere", says="no recovery point", code=4)


def test_merging_makes_a_branch_and_touches_nothing_else(desk: Desk, source: Path) -> None:
    finished(desk, source)
    before = state_of(source)
    desk.ok("job", "merge", "demo", "--dry-run")
    assert state_of(source) == before
    merged = desk.ok("job", "merge", "demo", "--into", "proposal")
    assert merged["applied"] and merged["data"]["branch"] == "proposal"
    after = state_of(source)
    assert after[0] == before[0] and after[2:] == before[2:]
    assert git(source, "show", "proposal:made.txt") == "by the worker\n"


def test_a_job_that_changed_nothing_has_nothing_to_merge(desk: Desk, source: Path) -> None:
    desk.new("--worker", "scripted:echo", "--source", str(source))
    desk.ran()
    said = desk("job", "merge", "demo")
    assert (said.code, said.out) == (0, "demo: nothing to merge: the job changed no file\n")


def test_the_rest_of_a_job_is_asked_again_upon_the_same_files(desk: Desk, source: Path) -> None:
    desk.new(
        "--worker", desk.program(WORKER), "--source", str(source), "--supervisor", "scripted:echo"
    )
    desk.ran()
    (source / "later.txt").write_text("moved on\n")
    git(source, "add", "later.txt")
    git(source, "commit", "-qm", "Later")
    again = desk.ok("job", "replay", "demo", "--from", "1", "--model", "scripted:echo")["data"]
    assert (again["same"], again["now"]["status"], again["now"]["calls"]) == (True, "SUCCESS", 2)
    patches = [
        desk.ok("job", "diff", each, "--patch")["data"]["patch"] for each in ("demo", again["new"])
    ]
    assert patches[0] == patches[1] and "made.txt" in patches[0]
    assert (again["was"]["unknown_costs"], again["now"]["unknown_costs"]) == (1, 1)
    said = desk("job", "replay", "demo", "--from", "1", "--model", "scripted:echo").out
    assert said.count(" s, cost unknown for 1 call\n") == 2


@pytest.mark.parametrize("names", [("source", "base"), ("gitSourceRepo", "baseBranch")])
def test_a_spec_may_name_a_repository_and_a_branch_that_is_not_the_usual_one(
    desk: Desk, source: Path, names: tuple[str, str]
) -> None:
    git(source, "switch", "-qc", "release")
    (source / "kept.txt").write_text("as it is released\n")
    git(source, "commit", "-qam", "Released")
    git(source, "switch", "-q", "main")
    fields = dict(zip(names, (str(source), "release"), strict=True))
    models = {"worker": desk.program(WORKER)}
    desk.ok("job", "new", desk.spec(job_id="demo", prompt="P", models=models, **fields))
    assert not desk.cwd.is_relative_to(source)
    desk.ran()
    assert (desk.workspace() / "kept.txt").read_text() == "as it is released\n"
    desk.ok("job", "merge", "demo")
    assert git(source, "merge-base", "job-demo", "release") == git(source, "rev-parse", "release")


# --- packed ---------------------------------------------------------------------------------


def test_a_packed_job_is_shown_as_before(desk: Desk, source: Path) -> None:
    finished(desk, source)
    words = [("job", "diff", "demo", "--patch"), ("job", "history", "demo", "--format", "json")]
    before = [desk.ok(*each)["data"] for each in words]
    replayed = desk.ok("job", "replay", "demo")["data"]
    packed = desk.ok("job", "archive", "demo")
    assert packed["applied"]
    files = packed["data"]["files"]
    folder = desk.home / "jobs/demo"
    raw = (folder / files["name"]).read_bytes()
    assert sha256(raw).hexdigest() == files["sha256"] and len(raw) == files["bytes"]
    assert not (folder / ".files").exists() and not (folder / "workspace").is_symlink()
    assert segments(desk) == ["history.1.jsonl", "history.jsonl.zst"]
    text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read()
    with tarfile.open(fileobj=io.BytesIO(text)) as tar:
        found = tar.extractfile("workspace/made.txt")
        assert found is not None and found.read() == b"by the worker\n"
    assert desk.show()["status"] == "SUCCESS"
    assert f"files: {folder / files['name']}\n" in desk("job", "show", "demo").out
    assert [desk.ok(*each)["data"] for each in words] == before
    again = desk.ok("job", "replay", "demo")["data"]
    assert {**again, "lines": 0} == {**replayed, "lines": 0}
    desk.ok("job", "export", "demo", "--out", str(desk.cwd / "page.html"))
    assert "by the worker" in (desk.cwd / "page.html").read_text()
    assert desk("check").code == 0
    assert not desk.ok("job", "archive", "demo")["applied"]
    desk.refused("job", "merge", "demo", says="is packed")


def unpack(desk: Desk, hint: str) -> None:
    """What the hint says, without what comes behind it."""
    subprocess.run(["sh", "-c", hint.partition(";")[0]], check=True)


@pytest.mark.skipif(which("zstd") is None, reason="tar needs it")
def test_a_packed_job_whose_files_were_unpacked_can_all_that_it_could(
    desk: Desk, source: Path
) -> None:
    spec = desk.program(WORKER), "--source", str(source), "--supervisor", "scripted:echo"
    desk.new("--worker", *spec)
    desk.ran()
    since = ("job", "diff", "demo", "--patch", "--since", desk.show()["points"][0])
    before = desk.ok(*since)["data"]
    desk.ok("job", "archive", "demo")
    for words in (("job", "merge", "demo"), since, ("job", "replay", "demo", "--from", "1")):
        error = desk.refused(*words, says="is packed")
    unpack(desk, error["hint"])
    assert desk.ok(*since)["data"] == before
    again = desk.ok("job", "replay", "demo", "--from", "1", "--model", "scripted:echo")["data"]
    assert again["same"] and (desk.workspace(again["new"]) / "made.txt").exists()
    assert desk.ok("job", "merge", "demo")["applied"]
    assert git(source, "show", "job-demo:made.txt") == "by the worker\n"
    desk.ok("job", "archive", "demo")
    assert not (desk.home / "jobs/demo/.files").exists()
    desk.refused("job", "merge", "demo", says="is packed")


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ("merge", ("merge", "demo")),
        ("diff", ("diff", "demo", "--since", "default-complete-0")),
        ("export", ("replay", "demo", "--from", "0")),
        ("diff", ("diff", "demo", "--patch")),
    ],
)
def test_what_is_packed_while_its_files_are_asked_for_is_said_to_be(
    desk: Desk, source: Path, monkeypatch: pytest.MonkeyPatch, begun: str, words: tuple[str, ...]
) -> None:
    finished(desk, source)
    plain = getattr(Workspace, begun)

    def packed_first(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Workspace, begun, plain)
        assert desk("job", "archive", "demo").code == 0
        return plain(*given, **more)

    monkeypatch.setattr(Workspace, begun, packed_first)
    ran = desk("job", *words)
    if "--patch" in words:
        assert (ran.code, ran.err) == (0, "") and "made.txt" in ran.out
    else:
        assert ran.code == 1 and "demo is packed" in ran.err, ran
    assert [each["job"] for each in desk.ok("job", "list")["rows"]] == ["demo"]


def test_a_patch_beyond_what_a_document_may_be_is_shown_of_a_packed_job(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    (desk.workspace() / "large.txt").write_bytes(b"0123456789abcdef\n" * (4 << 20))
    desk.ok("job", "archive", "demo")
    patch = desk.ok("job", "diff", "demo", "--patch")["data"]["patch"]
    assert len(patch) > 64 << 20 and patch.endswith("+0123456789abcdef\n")
    page = desk.cwd / "page.html"
    desk.ok("job", "export", "demo", "--out", str(page))
    assert "… the rest: holdfast job diff --patch" in page.read_text()


def test_a_file_of_zeros_is_packed_in_bounded_memory(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    with (desk.workspace() / "zeros").open("wb") as file:
        file.truncate(200 << 20)
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        tracemalloc.start()
        try:
            packing.pack(job)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 50 << 20


def test_without_isolation_nobody_says_after_packing_that_nothing_was_changed(
    desk: Desk, source: Path
) -> None:
    desk.new("--worker", desk.program(WORKER), "--source", str(source), "--isolation", "none")
    desk.ran()
    before = desk.refused("job", "diff", "demo", code=3, says="keeps no copy of its files")
    desk.ok("job", "archive", "demo")
    assert desk.refused("job", "diff", "demo", code=3) == before
    assert desk.refused("job", "diff", "demo", "--patch", code=3) == before
    desk.ok("job", "export", "demo", "--out", str(desk.cwd / "page.html"))


def test_a_job_that_changed_more_files_than_a_line_can_hold_is_packed(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    deep = desk.workspace() / Path(*["d" * 250] * 11)
    deep.mkdir(parents=True)
    for number in range(3200):
        (deep / f"{number:04}").touch()
    desk.ok("job", "archive", "demo")
    said = desk.ok("job", "diff", "demo")["data"]["changes"]
    assert " 3200 files changed, 0 insertions(+), 0 deletions(-)\n" in said
    assert "/0999 " in said and "/1000 " not in said and " … and 2200 more" in said
    assert len(said) < 1 << 20
    patch = desk.ok("job", "diff", "demo", "--patch")["data"]["patch"]
    assert patch.count("new file mode") == 3200


def test_only_what_is_over_is_packed(desk: Desk) -> None:
    desk.new("--worker", desk.script(AGAIN))
    desk.refused("job", "archive", "demo", says="only a job that is over")
    desk.ok("job", "cancel", "demo")
    before = desk.digest()
    assert not desk.ok("job", "archive", "demo", "--dry-run")["applied"]
    assert desk.digest() == before
    assert desk.ok("job", "archive", "demo")["applied"]
    assert desk.status() == "CANCELED"


def test_packing_that_was_cut_off_is_completed(desk: Desk, source: Path) -> None:
    finished(desk, source)

    def die() -> None:
        raise StorageError("the machine is gone", hint="none")

    with armed("job.packed", die):
        assert desk("job", "archive", "demo").code != 0
    assert (desk.home / "jobs/demo/.files").exists()
    desk.ok("job", "archive", "demo")
    assert not (desk.home / "jobs/demo/.files").exists()
    assert [each["event"] for each in records(desk) if each["event"] == "archived"] == ["archived"]


# --- grown ----------------------------------------------------------------------------------


def records(desk: Desk, id: str = "demo") -> list[dict[str, Any]]:
    with Home.open(str(desk.home)) as home, Job(home, id) as job:
        return [line.record for line in job.lines()]


def test_a_history_above_the_limit_goes_on_in_the_next_file(desk: Desk) -> None:
    settings = desk.home / "holdfast.toml"
    settings.write_text(settings.read_text() + '\n[log]\nrotate_at = "8KB"\n')
    long = {**DONE, "action": "RETRY", "summary_for_supervisor": "Again. " * 60}
    phase = {"name": "work", "max_retries": 30}
    spec = desk.spec(
        prompt="Go.", phases=[phase], models={"worker": desk.script(*[long] * 12, DONE)}
    )
    desk.ok("job", "new", spec, "--id", "demo")
    desk.ran()
    found = segments(desk)
    assert len(found) > 2
    newest = f"history.{len(found) - 1}.jsonl"
    assert [name for name in found if not name.endswith(".zst")] == [newest]
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        numbers = [line.seq for line in job.log.read() if isinstance(line, Line)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [each["sequence"] for each in desk.calls()] == list(range(13))
    replayed = desk.ok("job", "replay", "demo")["data"]
    assert (replayed["calls"], replayed["status"]) == (13, "SUCCESS")
    assert desk("check").code == 0


def test_a_long_jobhistory_moves_older_calls_to_packed_files(desk: Desk) -> None:
    long = {**DONE, "action": "RETRY", "summary_for_supervisor": "Again. " * 60}
    phase = {"name": "work", "max_retries": 30}
    spec = desk.spec(
        prompt="Go.", phases=[phase], models={"worker": desk.script(*[long] * 8, DONE)}
    )
    desk.ok("job", "new", spec, "--id", "demo")
    desk.ran()
    whole = desk.calls()
    (desk.home / "jobs/demo/jobHistory.json").unlink()
    with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
        history.show(job, largest=3 * len(json.dumps(whole[0])))
    rest = desk.document("jobHistory.json")
    assert rest["archives"] == [
        f"jobHistory.{n:04}.json.zst" for n in range(1, len(rest["archives"]) + 1)
    ]
    assert len(rest["archives"]) > 1
    moved: list[Any] = []
    for name in rest["archives"]:
        packed = (desk.home / "jobs/demo" / name).read_bytes()
        moved += json.loads(zstandard.decompress(packed))["interactions"]
    assert [*moved, *rest["interactions"]] == whole
