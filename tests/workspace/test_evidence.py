"""What an agent names as evidence is inside of its workspace, or it does not count."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.workspace.files import Examined, examine


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("not yours")
    made = tmp_path / "workspace"
    (made / "src/deep").mkdir(parents=True)
    (made / "src/deep/code.py").write_text("")
    (made / "notes.md").write_text("")
    return made


@pytest.mark.parametrize(
    "path",
    ["notes.md", "src/deep/code.py", "src", "src/", "./notes.md", "src//deep/./code.py", "."],
)
def test_a_file_or_folder_inside_is_evidence(workspace: Path, path: str) -> None:
    assert examine(str(workspace), [path]) == Examined([], [])


@pytest.mark.parametrize(
    "path",
    [
        "no",
        "src/no/x",
        "notes.md/",
        "notes.md/x",
        "n" * 300,
        "n" * 5000,
        "a/" * 2500,
        "\udc80",
        " ",
    ],
)
def test_what_is_not_there_is_missing(workspace: Path, path: str) -> None:
    assert examine(str(workspace), [path]) == Examined([path], [])


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/etc/passwd", "..", "../secret", "src/../../secret", "src/../notes.md", "no/..",
        "C:\\x", "c:x", "\\\\host\\x", "src\\..\\..\\secret", "notes.md\0", "\0", "../" * 2000,
    ],
)  # fmt: skip
def test_a_name_that_leads_out_is_an_escape(workspace: Path, path: str) -> None:
    assert examine(str(workspace), [path]) == Examined([], [path])


@pytest.mark.parametrize("target", ["notes.md", "src/deep/../../notes.md", "./src/", "src/deep"])
def test_a_link_that_stays_inside_is_followed(workspace: Path, target: str) -> None:
    (workspace / "link").symlink_to(target)
    (workspace / "src/back").symlink_to("../link")
    assert examine(str(workspace), ["link", "src/back"]) == Examined([], [])


@pytest.mark.parametrize(
    "target", ["../secret", "..", "../workspace/notes.md", "src/../..", "/etc/passwd", "/", "../no"]
)
def test_a_link_that_leads_out_is_an_escape(workspace: Path, target: str) -> None:
    (workspace / "link").symlink_to(target)
    (workspace / "src/back").symlink_to("../link")
    paths = ["link", "src/back", "link/x"]
    assert examine(str(workspace), paths) == Examined([], paths)


def test_a_link_with_an_absolute_target_inside_is_an_escape_too(workspace: Path) -> None:
    (workspace / "link").symlink_to(workspace / "notes.md")
    assert examine(str(workspace), ["link"]).escaping == ["link"]


def test_links_without_end_lead_nowhere(workspace: Path) -> None:
    (workspace / "self").symlink_to("self")
    (workspace / "ping").symlink_to("pong")
    (workspace / "pong").symlink_to("./ping")
    (workspace / "l0").symlink_to("notes.md")
    for number in range(1, 60):
        (workspace / f"l{number}").symlink_to(f"l{number - 1}")
    paths = ["self", "ping/x", "l30", "l39", "l40", "l59"]
    assert examine(str(workspace), paths) == Examined(["self", "ping/x", "l40", "l59"], [])


@pytest.mark.usefixtures("no_leak")
def test_what_is_no_file_is_neither_opened_nor_evidence(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")  # to open it would wait for a writer
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(workspace / "socket"))
        paths = ["pipe", "socket", "pipe/x"]
        assert examine(str(workspace), paths) == Examined(paths, [])


def test_a_workspace_that_is_gone_holds_nothing(workspace: Path) -> None:
    gone = str(workspace / "no")
    assert examine(gone, ["a", "/a"]) == Examined(["a"], ["/a"])


def test_a_workspace_that_was_replaced_by_a_link_is_not_entered(workspace: Path) -> None:
    outside = workspace.parent / "elsewhere"
    outside.symlink_to(workspace.parent)
    assert examine(str(outside), ["secret"]) == Examined([], ["secret"])
    assert examine(f"{outside}/", ["secret"]) == Examined([], ["secret"])
    assert examine(f"{workspace}//", ["notes.md"]) == Examined([], [])


def test_each_path_is_told_once_in_the_order_of_the_agent(workspace: Path) -> None:
    found = examine(str(workspace), ["z", "../y", "a", "z", "/b", "../y", "notes.md"])
    assert found == Examined(["z", "a"], ["../y", "/b"])


def test_a_failing_disk_is_not_taken_for_a_missing_file(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: str, **where: int) -> os.stat_result:
        raise OSError(5, f"Input/output error: {path}, {where}")

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(HoldfastError):
        examine(str(workspace), ["notes.md"])


@pytest.mark.usefixtures("no_leak")
def test_a_folder_that_turns_into_a_link_meanwhile_is_never_left_through(workspace: Path) -> None:
    (workspace.parent / "outside").mkdir()
    (workspace.parent / "outside/secret").write_text("not yours")
    (workspace / "folder").mkdir()
    (workspace / "link").symlink_to("../outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(workspace / "folder", workspace / "now")
            os.rename(workspace / "now", workspace / "folder")
            os.rename(workspace / "link", workspace / "now")
            os.rename(workspace / "now", workspace / "link")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen: set[str] = set()
        for tried in range(20_000):
            missing, escaping = examine(str(workspace), ["now/secret"])
            seen.update(["missing"] * len(missing) + ["escaping"] * len(escaping))
            assert missing or escaping, "a file outside was taken for one inside"
            if tried > 300 and len(seen) == 2:
                break
    finally:
        stop.set()
        swapping.join()
    assert seen == {"missing", "escaping"}, "the race was never run"


# --- against the plain truth ----------------------------------------------------------------

NAMES = ("a", "b", "c")
steps = st.sampled_from([*NAMES, *NAMES, "..", ".", ""])
relative = st.lists(steps, min_size=1, max_size=6).map("/".join)
places = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
things = st.one_of(
    st.sampled_from(["file", "folder", "pipe", "-> /", "-> /etc/passwd"]),
    relative.filter(bool).map("-> {}".format),
)
trees = st.lists(st.tuples(places, things), max_size=12)


def plant(root: Path, name: str, thing: str) -> None:
    place = root / name
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.parent.resolve() != place.parent:
            return  # a link is no way to plant others
        if thing == "file":
            place.touch()
        elif thing == "folder":
            place.mkdir()
        elif thing == "pipe":
            os.mkfifo(place)
        else:
            place.symlink_to(thing.removeprefix("-> "))
    except OSError:
        pass  # something else stands there already


@given(tree=trees, paths=st.lists(relative, min_size=1, max_size=12))
@example(tree=[("a/b", "file"), ("c", "-> a/../a/b")], paths=["c", "c/", "a/b"])
@example(tree=[("a", "-> b"), ("b", "-> .."), ("c", "-> a/../b")], paths=["a", "b", "c"])
def test_what_is_outside_is_never_called_inside(
    tree: list[tuple[str, str]], paths: list[str]
) -> None:
    with TemporaryDirectory() as scratch:
        root = Path(scratch).resolve() / "x" / "y" / "workspace"
        root.mkdir(parents=True)
        for name, thing in sorted(tree, key=lambda each: each[1].startswith("->")):
            plant(root, name, thing)
        found = examine(str(root), paths)
        for path in set(paths) - set(found.escaping):
            there, full = path not in found.missing, f"{root}/{path}"
            assert there == (os.path.isfile(full) or os.path.isdir(full))
            assert not there or Path(os.path.realpath(full)).is_relative_to(root)
