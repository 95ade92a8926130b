"""Which home is meant, and which homes are refused."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.ledger.shell import PROGRAM, Ran, Shell

OTHER_USER = 65534


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def where(shell: Shell, *words: str, cwd: Path | None = None, **env: str) -> Ran:
    """What `holdfast path` says."""
    return shell.run([PROGRAM, *words, "path"], env=env, cwd=cwd)


def make(shell: Shell, place: Path) -> Path:
    assert shell.run([PROGRAM, "--home", str(place), "init", "--timezone", "UTC"]).code == 0
    return place


def test_the_flag_comes_before_the_environment_before_the_nearest_before_the_users_own(
    shell: Shell,
) -> None:
    places = {
        "flag": make(shell, shell.place / "by-flag"),
        "environment": make(shell, shell.place / "by-environment"),
        "nearest": make(shell, shell.cwd / ".holdfast"),
        "user": make(shell, shell.place / "data/holdfast"),
    }
    env = {"XDG_DATA_HOME": str(shell.place / "data")}
    home = {"HOLDFAST_HOME": str(places["environment"])}
    found = [
        where(shell, "--home", str(places["flag"]), **env, **home),
        where(shell, **env, **home),
        where(shell, **env),
        where(shell, cwd=shell.user, **env),
    ]
    assert [ran.out.strip() for ran in found] == [str(place) for place in places.values()]


def test_the_flag_may_stand_before_or_after_the_verb(shell: Shell) -> None:
    make(shell, shell.home)
    for words in (
        ["--home", str(shell.home), "path"],
        ["path", "--home", str(shell.home)],
        ["path", f"--home={shell.home}"],
    ):
        ran = shell.run([PROGRAM, *words])
        assert (ran.code, ran.out) == (0, f"{shell.home}\n")


def test_the_nearest_home_above_the_working_directory_is_taken(shell: Shell) -> None:
    deep = shell.cwd / "a/b/c"
    deep.mkdir(parents=True)
    make(shell, shell.cwd / ".holdfast")
    nearer = make(shell, shell.cwd / "a/b/.holdfast")
    assert where(shell, cwd=deep).out.strip() == str(nearer)
    assert where(shell, cwd=shell.cwd / "a").out.strip() == str(shell.cwd / ".holdfast")


def test_a_file_called_holdfast_above_is_no_home(shell: Shell) -> None:
    (shell.cwd / ".holdfast").write_text("no directory", encoding="utf-8")
    own = make(shell, shell.place / "data/holdfast")
    assert where(shell, XDG_DATA_HOME=str(shell.place / "data")).out.strip() == str(own)


def test_an_empty_variable_is_as_good_as_none(shell: Shell) -> None:
    make(shell, shell.cwd / ".holdfast")
    assert where(shell, HOLDFAST_HOME="").out.strip() == str(shell.cwd / ".holdfast")


def test_init_without_a_place_makes_the_home_in_the_users_own_directory(shell: Shell) -> None:
    ran = shell.run([PROGRAM, "init"], env={"XDG_DATA_HOME": str(shell.place / "data")})
    assert ran.code == 0
    assert (shell.place / "data/holdfast/holdfast.toml").is_file()
    assert list(shell.cwd.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_home_that_was_found_and_belongs_to_somebody_else_is_refused(shell: Shell) -> None:
    found = make(shell, shell.cwd / ".holdfast")
    os.chown(found, OTHER_USER, OTHER_USER)
    before = sorted(found.rglob("*"))
    for words in (["status"], ["ledger", "write", "--agent", "a", "--event", "info", "x"]):
        ran = shell.run([PROGRAM, *words, "--json"])
        assert (ran.code, ran.out) == (3, "")
        assert ran.error()["code"] == "not_ours"
        assert ran.error()["path"] == str(found)
        assert "--home" in ran.error()["hint"]
    assert sorted(found.rglob("*")) == before
    # Whoever names it means it.
    assert where(shell, "--home", str(found)).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_somebody_else_is_no_way_to_our_home(shell: Shell) -> None:
    ours = make(shell, shell.place / "ours")
    link = shell.cwd / ".holdfast"
    link.symlink_to(ours)
    os.chown(link, OTHER_USER, OTHER_USER, follow_symlinks=False)
    assert where(shell).code == 3


def test_a_home_of_a_newer_format_is_refused_and_not_touched(shell: Shell) -> None:
    shell.write("text")
    settings = shell.home / "holdfast.toml"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace("format = 1", "format = 2"), encoding="utf-8"
    )
    before = {path: path.read_bytes() for path in shell.home.rglob("*") if path.is_file()}
    for words in (
        ["status"],
        ["init", "rio"],
        ["ledger", "write", "--agent", "cls", "--event", "info", "x"],
        ["doctor", "--fix"],
    ):
        ran = shell(*words, "--json")
        assert ran.code == 3, words
        assert ran.error()["code"] == "newer_format"
        assert "2" in ran.error()["message"]
        assert "upgrade" in ran.error()["hint"]
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format = ", "holdfast.toml cannot be read"),
        ("\0\0\0\0", "holdfast.toml cannot be read"),
        ("", "no format number"),
        ('format = "1"', "no format number"),
        ('format = 1\ntimezone = "Mars"', "Mars"),
        ('format = 1\noffline_after = "soon"', "offline_after"),
        ("format = 1\nheartbeat = -5", "heartbeat"),
        ('format = 1\n[ledger]\nextra_events = "deploy"', "extra_events"),
        ("format = 1\n[ledger]\nextra_events = [1]", "extra_events"),
        ("format = 1\nledger = 5", "ledger is not a table"),
    ],
)
def test_damaged_settings_are_exit_three_and_say_what_is_wrong_and_where(
    shell: Shell, text: str, says: str
) -> None:
    make(shell, shell.home)
    (shell.home / "holdfast.toml").write_text(text, encoding="utf-8")
    ran = shell("status", "--json")
    assert ran.code == 3
    assert says in ran.error()["message"]
    assert ran.error()["hint"]
    assert "holdfast.toml" in f"{ran.error()['message']} {ran.error()['path']}"
    assert (shell.home / "holdfast.toml").read_text(encoding="utf-8") == text


def test_settings_that_are_not_utf_8_are_exit_three(shell: Shell) -> None:
    make(shell, shell.home)
    (shell.home / "holdfast.toml").write_bytes(b"format = 1\n# caf\xe9\n")
    assert shell("status").code == 3


def test_a_damaged_key_for_secrets_is_exit_three_when_there_is_a_secret(shell: Shell) -> None:
    make(shell, shell.home)
    key = shell.home / ".mask-key"
    key.write_text("not hex", encoding="utf-8")
    ran = shell.write("text", "--data", '{"password": "hunter2"}', "--json")
    assert ran.code == 3
    assert "mask-key" in ran.error()["message"]
    assert shell.write("no secret in it").code == 0


def test_an_empty_key_for_secrets_makes_no_tags_that_anybody_could_look_up(shell: Shell) -> None:
    make(shell, shell.home)
    (shell.home / ".mask-key").write_bytes(b"")
    ran = shell.write("text", "--data", '{"password": "hunter2"}')
    assert ran.code in (0, 3)
    if ran.code == 0:
        guessed = blake2b(b"hunter2", digest_size=4).hexdigest()
        assert guessed not in shell("ledger", "list", "--json").out


def test_a_directory_that_is_no_home_is_not_taken_for_one(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "thesis.txt").write_text("precious", encoding="utf-8")
    ran = shell("status")
    assert ran.code == 4
    assert "no Holdfast home" in ran.err
    assert sorted(path.name for path in shell.home.iterdir()) == ["thesis.txt"]
