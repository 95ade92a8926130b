"""Trees of other systems, worked on where they lie."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast import layout as layouts
from holdfast.errors import BadName, ConfigError, NotFound, UsageError
from holdfast.ids import is_agent_id
from holdfast.layout import HOLDFAST, LUKA, PRESETS, QJSON, TELEO, Slot
from holdfast.ops.context import Context
from holdfast.testing import Turner, refused
from tests.ledger.shell import PROGRAM, Shell, Verbs, on_its_own
from tests.ops.foreign import entry, lines, luka, put, snapshot

AFTERNOON = 1_763_280_000.0
"""On 2025-11-16, after all entries of that day."""
NAMES = ["holdfast", "teleo", "luka", "qjson", "logist", "omc"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return luka(tmp_path / "tree")


@pytest.fixture
def verbs(tree: Path, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    clock.advance(AFTERNOON - clock.now())
    return Verbs(str(tree), clock, layout="luka")


# --- names ----------------------------------------------------------------------------------


def test_there_are_six_presets_and_no_other() -> None:
    assert list(PRESETS) == NAMES
    with refused(UsageError, "no layout is called 'Luka'"):
        layouts.preset("Luka")


@pytest.mark.parametrize("name", NAMES)
def test_every_path_of_a_layout_is_recognised_as_what_it_is(name: str) -> None:
    found = PRESETS[name]
    for part, template in found.paths.items():
        path = found.path(part, "x-1" if "*" in template else "")
        assert found.slot(path) == Slot(part, "x-1" if "*" in template else "", "")
        assert found.slot(f"{path}/deep/er") == Slot(
            part, "x-1" if "*" in template else "", "deep/er"
        )


@pytest.mark.parametrize(
    ("layout", "part", "path"),
    [
        (HOLDFAST, "ledger", "ledger/rio"),
        (HOLDFAST, "report", "state/rio/report.json"),
        (TELEO, "report", "rio/report.json"),
        (TELEO, "inbox", "rio/inbox"),
        (TELEO, "notes", "rio/memory.md"),
        (LUKA, "ledger", "g/ledger/rio"),
        (LUKA, "status", "agents/rio/status.json"),
        (LUKA, "summaries", "memory/rio/sessions"),
        (QJSON, "fmm", "state/rio/fmm.json"),
        (QJSON, "runs", "logs"),
    ],
)
def test_the_parts_of_a_tree_lie_where_their_systems_put_them(
    layout: layouts.Layout, part: layouts.Part, path: str
) -> None:
    assert layout.path(part, "rio") == path


@pytest.mark.parametrize("name", ["../leo", "", "x" * 300, "rio;rm", "a/b", ".hidden"])
@pytest.mark.parametrize("layout", [HOLDFAST, TELEO, LUKA])
def test_a_name_that_could_lead_elsewhere_never_becomes_a_path(
    layout: layouts.Layout, name: str
) -> None:
    assert not is_agent_id(name)
    for make in (layout.ledger, layout.status, layout.manifest, layout.agent):
        with refused(BadName):
            make(name)
    with refused(BadName):
        layout.path("inbox", name)


def test_a_part_that_a_tree_does_not_have_is_refused_by_name() -> None:
    with refused(ConfigError, "logist has no ledger"):
        PRESETS["logist"].ledger("rio")


def test_agents_are_known_by_their_files_not_by_stray_folders() -> None:
    keys = ["g/ledger/cls/2025-11-16.jsonl", "g/ledger/loose.jsonl", "agents/README.md"]
    keys += ["agents/lac/status.json", "agents/docs/plan.md", "memory/x/sessions/a.md"]
    assert LUKA.agents_in(keys) == {"cls", "lac"}
    assert TELEO.agents_in(["rio/report.json", "docs/x.md", "report.json"]) == {"rio"}
    assert HOLDFAST.agents_in(["state/rio/x", "state/index.json", "ledger/leo/y"]) == {"rio", "leo"}


# --- looking --------------------------------------------------------------------------------


def test_a_foreign_tree_is_listed_verified_and_shown_without_a_byte_written(
    verbs: Verbs, tree: Path
) -> None:
    before = snapshot(tree)
    assert len(verbs.rows("ledger list")) == 9
    assert {row["agent"] for row in verbs.rows("ledger list", agent="andy")} == {"andy"}
    verified = verbs("ledger verify")
    assert verified.exit_code == 0
    assert [(row["agent"], row["state"]) for row in verified.rows] == [
        ("andy", "unchained"),
        ("cls", "unchained"),
    ]
    assert verified.counts["unchained"] == 9
    standing = {row["agent"]: row for row in verbs.rows("status")}
    assert set(standing) == {"andy", "cls"}
    assert (standing["cls"]["recorded_state"], standing["cls"]["last_task_id"]) == ("idle", "wo-1")
    assert len(verbs("ledger tail")) == 9
    assert verbs("path", id="cls").text == str(tree / "agents/cls")
    assert snapshot(tree) == before


def test_the_command_line_takes_the_layout_before_and_behind_the_verb(
    tree: Path, tmp_path: Path
) -> None:
    shell = Shell(tmp_path)
    words = ["ledger", "list", "--json"]
    ran = [
        shell.run([PROGRAM, "--home", str(tree), "--layout", "luka", *words]),
        shell.run([PROGRAM, *words, "--layout", "luka", "--home", str(tree)]),
        shell.run([PROGRAM, "--layout", "luka", *words], cwd=tree),
    ]
    assert [each.code for each in ran] == [0, 0, 0]
    assert ran[0].rows() == ran[1].rows() == ran[2].rows()
    assert len(ran[0].rows()) == 9


def test_an_adopted_tree_is_the_home_of_whoever_stands_in_it(tree: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run([PROGRAM, "--layout", "luka", "init", "cls"], cwd=tree).code == 0
    words = [PROGRAM, "ledger", "write", "--agent", "cls", "--event", "info"]
    for where, text in ((tree, "here"), (tree / "agents/cls", "below")):
        assert shell.run([*words, text], cwd=where).code == 0
    written = "".join(each.read_text() for each in tree.glob("g/ledger/cls/*.jsonl"))
    assert '"here"' in written and '"below"' in written
    assert not (shell.user / ".local/share/holdfast").exists()
    other = {"HOLDFAST_HOME": str(tmp_path / "other")}
    assert shell.run([PROGRAM, "init"], cwd=tree, env=other).code == 0
    assert shell.run([*words, "elsewhere"], cwd=tree, env=other).code == 0
    inner = tree / "inner"
    assert shell.run([PROGRAM, "--home", str(inner / ".holdfast"), "init"]).code == 0
    assert shell.run([*words, "inner"], cwd=inner).code == 0
    written = "".join(each.read_text() for each in tree.glob("g/ledger/cls/*.jsonl"))
    assert "elsewhere" not in written and '"inner"' not in written


def test_a_tree_that_is_not_there_is_not_found(verbs: Verbs) -> None:
    verbs.path += "/nowhere"
    with refused(NotFound, "no tree of luka"):
        verbs("ledger list")
    assert not Path(verbs.path).exists()


def test_a_folder_spelled_in_upper_case_is_found_and_written_to(verbs: Verbs, tree: Path) -> None:
    (tree / "g/ledger/cls").rename(tree / "g/ledger/CLS")
    (tree / "agents/cls").rename(tree / "agents/Cls")
    assert len(verbs.rows("ledger list", agent="cls")) == 6
    verbs.write("ours", agent="CLS")
    assert sorted(each.name for each in (tree / "g/ledger").iterdir()) == ["CLS", "andy"]
    assert len(verbs.rows("ledger list", agent="cls")) == 7


def test_a_name_that_cannot_be_an_agent_here_is_told(verbs: Verbs, tree: Path) -> None:
    put(tree / "g/ledger/Lila-v∞/2025-11-16.jsonl", lines([entry(1)]))
    assert len(verbs.rows("ledger list")) == 9
    assert any("Lila-v∞" in warning for warning in verbs.warnings)


def test_a_ledger_that_is_a_link_to_elsewhere_is_not_followed(
    verbs: Verbs, tree: Path, tmp_path: Path
) -> None:
    put(tmp_path / "elsewhere/2025-11-16.jsonl", lines([entry(1)]))
    (tree / "g/ledger/liam").symlink_to(tmp_path / "elsewhere")
    assert {row["agent"] for row in verbs.rows("ledger list")} == {"cls", "andy"}


# --- writing --------------------------------------------------------------------------------


def test_writing_in_place_chains_from_our_first_line_and_seals_what_was_before(
    verbs: Verbs, tree: Path, clock: Turner
) -> None:
    file = tree / "g/ledger/cls/2025-11-16.jsonl"
    original = file.read_bytes()
    done = verbs.write("ours", agent="cls", event="task_start", task="wo-2")
    assert (done.data["seq"], done.data["file"]) == (1, "2025-11-16.jsonl")
    assert file.read_bytes().startswith(original)
    rows = verbs("ledger verify", agent="cls").rows
    assert [(row["state"], row["detail"]) for row in rows] == [("sound", "1 lines, 6 unchained")]
    assert verbs.rows("status", agent="cls")[0]["state"] == "busy"

    file.write_bytes(file.read_bytes().replace(b"wo-test-009", b"wo-test-00X"))
    assert verbs("ledger verify", agent="cls").exit_code == 6


def test_the_first_write_puts_the_layout_on_record(verbs: Verbs, tree: Path, clock: Turner) -> None:
    verbs.write("ours", agent="cls")
    settings = tomllib.loads((tree / "holdfast.toml").read_text("utf-8"))
    assert (settings["format"], settings["layout"]) == (1, "luka")
    plain = Verbs(verbs.path, clock)
    assert plain.texts(agent="cls")[-1] == "ours"
    with refused(ConfigError, "has the layout luka, not teleo"):
        Verbs(verbs.path, clock, layout="teleo")("status")


def test_the_status_of_others_is_kept_when_ours_takes_its_place(verbs: Verbs, tree: Path) -> None:
    theirs = (tree / "agents/cls/status.json").read_bytes()
    verbs.write("ours", agent="cls", event="error")
    kept = [each for each in (tree / "agents/cls").iterdir() if ".edited-" in each.name]
    assert [each.read_bytes() for each in kept] == [theirs]
    assert b'"error"' in (tree / "agents/cls/status.json").read_bytes()


def test_init_adopts_a_tree_and_says_its_layout(verbs: Verbs, tree: Path, clock: Turner) -> None:
    done = verbs("init", agent=["gg"], timezone="+07:00")
    assert (done.applied, done.data["layout"]) == (True, "luka")
    assert (tree / "agents/gg/manifest.json").exists()
    again = verbs("init", agent=["gg"])
    assert not again.applied
    assert Verbs(verbs.path, clock)("rebuild").applied


def test_what_changes_files_of_others_waits_until_the_tree_was_adopted(
    verbs: Verbs, tree: Path
) -> None:
    before = snapshot(tree)
    with refused(ConfigError, "only looked at"):
        verbs("rebuild")
    for name in ("check", "doctor"):
        with refused(ConfigError, "a tree of luka"):
            verbs(name)
    with refused(ConfigError, "no packed files"):
        verbs("ledger archive")
    assert snapshot(tree) == before


@pytest.mark.parametrize("name", ["logist", "omc"])
def test_trees_of_engines_are_read_only_in_place(
    name: str, tmp_path: Path, clock: Turner, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    tree = tmp_path / "jobs"
    put(tree / "jobs_index.json", "{}")
    before = snapshot(tree)
    verbs = Verbs(str(tree), clock, layout=name)
    for call in (lambda: verbs.write("x"), lambda: verbs("init", agent=["rio"])):
        with refused(ConfigError, "only read where it lies"):
            call()
    assert verbs.rows("status") == []
    assert snapshot(tree) == before


def test_a_home_of_ours_is_not_taken_for_a_foreign_tree(
    path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    Verbs(path, clock)("init", timezone="UTC")
    with refused(ConfigError, "has the layout holdfast, not luka"):
        Verbs(path, clock, layout="luka").write("x")
    assert Verbs(path, clock, layout="holdfast").write("x").applied


def test_settings_that_name_an_unknown_layout_are_refused(
    path: str, clock: Turner, tmp_path: Path
) -> None:
    put(Path(path, "holdfast.toml"), 'format = 1\nlayout = "lost"\n')
    with Context(path, clock) as context, refused(UsageError, "lost"):
        context.home()


def test_an_agent_state_tree_keeps_our_ledger_in_the_folder_of_the_agent(
    tmp_path: Path, clock: Turner, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    tree = tmp_path / "agent-state"
    put(tree / "rio/report.json", '{"agent": "rio"}')
    put(tree / "rio/inbox/a.json", "{}")
    put(tree / "docs/plan.md", "")
    verbs = Verbs(str(tree), clock, layout="teleo")
    assert [row["agent"] for row in verbs.rows("status")] == ["rio"]
    verbs.write("ours", agent="rio")
    assert [each.suffix for each in (tree / "rio/ledger").glob("2*")] == [".jsonl"]
    assert (tree / "rio/status.json").exists()
    assert [row["agent"] for row in verbs.rows("status")] == ["rio"]
