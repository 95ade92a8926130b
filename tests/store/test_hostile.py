"""A stranger where a file of ours belongs: a typed error at once, and nothing outside touched."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import encode
from holdfast.errors import HoldfastError, NotOurs
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.vfs import RealVfs
from holdfast.store.view import Shape
from holdfast.testing import Turner, data_of, numbers_of, refused

VICTIM = b"belongs to somebody else\n"
ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True)
def impatience() -> Iterator[None]:
    """A test that hangs over a FIFO is ended."""

    def handler(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 10)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path / "outside"
    made.mkdir()
    (made / "victim").write_bytes(VICTIM)
    return made


def untouched(outside: Path) -> bool:
    return os.listdir(outside) == ["victim"] and (outside / "victim").read_bytes() == VICTIM


def link_to_file(place: Path, outside: Path) -> None:
    place.symlink_to(outside / "victim")


def link_to_nothing(place: Path, outside: Path) -> None:
    place.symlink_to(outside / "nothing")


def link_to_directory(place: Path, outside: Path) -> None:
    place.symlink_to(outside)


def link_to_itself(place: Path, outside: Path) -> None:
    place.symlink_to(place.name)


def fifo(place: Path, outside: Path) -> None:
    os.mkfifo(place)


def directory(place: Path, outside: Path) -> None:
    place.mkdir()


def unix_socket(place: Path, outside: Path) -> None:
    here = os.getcwd()
    made = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(place.parent)  # the whole path may be too long for a socket
        made.bind(place.name)
    finally:
        os.chdir(here)
        made.close()


def device(place: Path, outside: Path) -> None:
    os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # the one that never ends: zero


KINDS = [
    link_to_file,
    link_to_nothing,
    link_to_directory,
    link_to_itself,
    fifo,
    directory,
    unix_socket,
    pytest.param(device, marks=pytest.mark.skipif(not ROOT, reason="needs root")),
]

SHAPE = Shape(
    version=1,
    initial=list[Any],
    fold=lambda state, line: [*state, line.record.get("n")],
    render=encode,
)


def append(home: Home) -> None:
    log = home.log("d/a.jsonl")
    try:
        log.append({"n": 1})
    finally:
        log.close()


def read(home: Home) -> None:
    list(home.log("d/a.jsonl").read())


def refresh(home: Home) -> None:
    home.view("d/v.json", home.log("d/a.jsonl"), SHAPE).refresh()


def write(home: Home) -> None:
    home.document("d/m.md").replace(b"new")


def lease(home: Home) -> None:
    found = home.lease("d/l")
    try:
        found.acquire("x")
    finally:
        found.close()


CASES: list[tuple[str, Callable[[Home], object]]] = [
    ("d/a.jsonl", append),
    ("d/a.jsonl", read),
    ("d/a.jsonl", lambda home: home.log("d/a.jsonl").verify()),
    ("d/a.jsonl", lambda home: home.log("d/a.jsonl").head()),
    ("d/a.jsonl", lambda home: home.log("d/a.jsonl").settle()),
    ("d/a.1.jsonl", append),
    ("d/a.1.jsonl", read),
    ("d/.a.jsonl.lock", append),
    ("d/m.md", lambda home: home.document("d/m.md").read()),
    ("d/m.md", write),
    ("d/.m.md.lock", write),
    ("d/v.json", refresh),
    ("d/.v.json.view", refresh),
    ("d/.v.json.lock", refresh),
    ("d/.l.lease", lease),
    ("d/.l.lease", lambda home: home.lease("d/l").holder()),
    ("d", append),
    ("d", read),
    ("d", write),
    ("d", refresh),
    ("d", lease),
    ("d", lambda home: home.document("d/m.md").read()),
    ("d", lambda home: home.cell("d/v.json").load(1)),
    ("d", lambda home: home.lease("d/l").holder()),
    ("d", lambda home: home.keys("d")),
    ("d/e", lambda home: home.document("d/e/f.md").replace(b"x")),
]


def names(case: object) -> str:
    return getattr(case, "__name__", None) or str(case)


def strange(kinds: list[Any], cases: list[Any], belongs: Callable[[str], bool]) -> list[Any]:
    """Every kind in every place, but for directories where those belong."""
    made: list[Any] = []
    for kind in kinds:
        marks = getattr(kind, "marks", ())
        make = kind.values[0] if marks else kind
        made += [
            pytest.param(make, *case, marks=marks)
            for case in cases
            if make is not directory or not belongs(case[0])
        ]
    return made


@pytest.mark.parametrize(
    ("kind", "place", "act"),
    strange(KINDS, CASES, lambda place: place in ("d", "d/e")),
    ids=names,
)
def test_a_stranger_in_our_place_is_refused_at_once(
    home: Home,
    path: str,
    outside: Path,
    kind: Callable[[Path, Path], None],
    place: str,
    act: Callable[[Home], object],
    no_leak: None,
) -> None:
    if place != "d":
        Path(path, "d").mkdir()
    if place == "d/a.1.jsonl" or (act is refresh and place != "d"):
        append(home)
    Path(path, place).unlink(missing_ok=True)
    kind(Path(path, place), outside)
    start = time.monotonic()
    with refused(NotOurs):
        act(home)
    assert time.monotonic() - start < 1
    assert untouched(outside)
    assert os.path.lexists(Path(path, place)), "it is not ours to remove"


@pytest.mark.parametrize("kind", KINDS, ids=names)
@pytest.mark.parametrize(
    ("place", "act", "works"),
    [
        ("d/.a.jsonl.tmp", append, lambda home: numbers_of(home.log("d/a.jsonl")) == [1]),
        ("d/.m.md.tmp", write, lambda home: data_of(home.document("d/m.md")) == b"new"),
        ("d/.v.json.tmp", refresh, lambda home: home.keys("d") == ["d/a.jsonl", "d/v.json"]),
        ("d/..v.json.view.tmp", refresh, lambda home: home.cell("d/v.json").load(1) is not None),
    ],
    ids=names,
)
def test_a_stranger_in_place_of_a_temporary_is_removed_or_refused(
    home: Home,
    path: str,
    outside: Path,
    kind: Callable[[Path, Path], None],
    place: str,
    act: Callable[[Home], object],
    works: Callable[[Home], bool],
    no_leak: None,
) -> None:
    Path(path, "d").mkdir()
    if act is refresh:
        append(home)
    kind(Path(path, place), outside)
    start = time.monotonic()
    if kind is directory:
        with pytest.raises(HoldfastError) as caught:
            act(home)
        assert caught.value.hint
    else:
        act(home)
        assert works(home)
    assert time.monotonic() - start < 1
    assert untouched(outside)


PLACES = sorted({place for place, _ in CASES} | {"d/x.json", "d/.y.tmp"})


@pytest.mark.parametrize(
    ("kind", "place"),
    strange(KINDS, [(place,) for place in PLACES], lambda place: not place.startswith("d/.")),
    ids=names,
)
def test_a_check_names_the_stranger_and_goes_on(
    home: Home, path: str, outside: Path, kind: Callable[[Path, Path], None], place: str
) -> None:
    home.document("z.json").replace(b"broken")
    if place != "d":
        append(home)
        refresh(home)
        Path(path, place).unlink(missing_ok=True)
    kind(Path(path, place), outside)
    start = time.monotonic()
    findings = list(check(home))
    assert time.monotonic() - start < 2
    assert "z.json" in [finding.key for finding in findings]
    assert place in [finding.key for finding in findings if finding.kind == "alien"]
    assert untouched(outside)


@pytest.mark.parametrize("kind", KINDS, ids=names)
@pytest.mark.parametrize("name", ["holdfast.toml", ".holdfast.toml.lock"])
def test_strange_settings_are_refused(
    tmp_path: Path, outside: Path, kind: Callable[[Path, Path], None], name: str, no_leak: None
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    kind(home / name, outside)
    with refused(NotOurs):
        Home.open(str(home), create=True)
    assert untouched(outside)


@pytest.mark.parametrize("kind", KINDS, ids=names)
def test_a_strange_key_of_the_mask_is_refused(
    home: Home, path: str, outside: Path, kind: Callable[[Path, Path], None], no_leak: None
) -> None:
    Path(path, ".mask-key").unlink(missing_ok=True)
    kind(Path(path, ".mask-key"), outside)
    log = home.log("a.jsonl")
    with refused(NotOurs):
        log.append({"password": "secret"})
    assert list(log.read()) == []
    assert untouched(outside)
    log.close()


@pytest.mark.parametrize("kind", KINDS[:3], ids=names)
def test_a_strange_home_is_refused_or_followed_on_purpose(
    tmp_path: Path, outside: Path, kind: Callable[[Path, Path], None], no_leak: None
) -> None:
    kind(tmp_path / "home", outside)
    with pytest.raises(HoldfastError) as caught:
        Home.open(str(tmp_path / "home"))
    assert caught.value.hint
    assert untouched(outside)


@pytest.mark.parametrize(
    "key", ["../x", "d/../../x", "/tmp/x", "d/a\0b", "d/" + "x" * 300, "d/a\nb"]
)
def test_a_key_that_leaves_the_home_creates_nothing(
    home: Home, path: str, tmp_path: Path, key: str
) -> None:
    def everything() -> list[str]:
        return sorted(str(file) for file in tmp_path.rglob("*"))

    before = everything()
    for open_by_key in (home.log, home.document, home.cell, home.lease):
        with pytest.raises(HoldfastError):
            open_by_key(key)
    assert everything() == before


def test_the_longest_names_work_for_everything(home: Home, path: str, clock: Turner) -> None:
    folder = "d" * 200
    log = home.log(f"{folder}/{'l' * 194}.jsonl", rotate_at=1)
    for number in range(3):
        log.append({"n": number})
    assert numbers_of(log) == [0, 1, 2]
    home.document(f"{folder}/{'m' * 200}").replace(b"x")
    view = home.view(f"{folder}/{'v' * 200}", log, SHAPE)
    view.refresh()
    for number in range(2):
        Path(path, folder, "v" * 200).write_bytes(b"edited %d" % number)
        clock.advance(1)
        log.append({"n": number})
        view.refresh()
    assert len(view.kept_aside) == 2
    held = home.lease(f"{folder}/{'s' * 200}")
    held.acquire("x")
    held.release()
    log.close()


def test_what_is_no_file_is_told_by_its_kind(tmp_path: Path, outside: Path) -> None:
    vfs = RealVfs()
    root = vfs.root(str(tmp_path))
    kinds = {"link": link_to_file, "fifo": fifo, "dir": directory, "socket": unix_socket}
    if ROOT:
        kinds["device"] = device
    for name, make in kinds.items():
        make(tmp_path / name, outside)
        found = root.stat(name)
        assert found is not None
        assert found.kind == name
    (tmp_path / "file").write_bytes(b"1234")
    found = root.stat("file")
    assert found is not None
    assert (found.kind, found.size) == ("file", 4)
    assert root.stat("absent") is None
    assert root.stat("file/below") is None
    root.close()
