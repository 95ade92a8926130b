"""Files that become data: once, again when they change, and said when they are gone."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.swarm import FMM
from holdfast.memory.ingest import PIECE
from holdfast.memory.ingest import ingest as take_in
from holdfast.memory.topics import Topics
from holdfast.store.home import Home
from holdfast.text import pieces
from tests.ledger.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    return made


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    (docs / "api").mkdir(parents=True)
    (docs / ".git").mkdir()
    (docs / ".git/config").write_text("hidden", encoding="utf-8")
    (docs / "api/ports.md").write_text("The gateway listens on port 8081.\n", encoding="utf-8")
    (docs / "fees.md").write_text("Fees are 2 %.\n", encoding="utf-8")
    (docs / "logo.png").write_bytes(b"\x89PNG\xff\xfe")
    return docs


def ingest(shell: Shell, *words: object) -> Any:
    done = shell("memory", "ingest", *map(str, words), "--agent", "rio", "--json")
    assert done.code == 0, done.err
    return done.json()["data"]


def data(shell: Shell, topic: str) -> list[dict[str, Any]]:
    shown = shell("memory", "show", "--agent", "rio", "--topic", topic, "--json")
    return shown.json()["data"]["data"]


def test_files_become_data_with_their_path_and_hash(shell: Shell, docs: Path) -> None:
    done = ingest(shell, docs)
    ports, fees = docs / "api/ports.md", docs / "fees.md"
    assert sorted(done["added"]) == sorted(map(str, (ports, fees)))
    assert done["skipped"] == {str(docs / "logo.png"): "not UTF-8 text"}
    known = {each["source"]: each for each in data(shell, "ingest/docs")}
    assert known.keys() == {str(ports), str(fees)}
    digest = sha256(ports.read_bytes()).hexdigest()
    place = {"origin": str(ports), "hash": f"sha256:{digest}", "piece": 1, "of": 1}
    assert known[str(ports)]["meta"] == place
    found = shell("memory", "search", "which port", "--agent", "rio", "--json").rows()[0]
    assert (found["source"], found["session"], found["from"]) == ("chunk", str(ports), str(ports))
    tree = json.loads((shell.home / "state/rio/fmm.json").read_bytes())
    assert FMM.read(tree, strict=True).findings == []


def test_only_what_changed_is_taken_in_again(shell: Shell, docs: Path) -> None:
    ingest(shell, docs)
    again = ingest(shell, docs)
    assert (again["unchanged"], again["pieces"]) == (2, 0)
    assert ingest(shell, docs / "fees.md")["unchanged"] == 1, "by whatever name it is given"
    (docs / "fees.md").write_text("Fees are 3 %.\n", encoding="utf-8")
    third = ingest(shell, docs)
    assert (third["changed"], third["unchanged"]) == ([str(docs / "fees.md")], 1)
    texts = [each["text"] for each in data(shell, "ingest")]
    assert sorted(texts) == ["Fees are 3 %.", "The gateway listens on port 8081."]
    (hit,) = shell("memory", "search", "fees", "--agent", "rio", "--json").rows()
    assert hit["text"] == "Fees are 3 %."


def test_a_file_that_disappeared_is_said_and_forgotten_when_told_to(
    shell: Shell, docs: Path
) -> None:
    ingest(shell, docs)
    (docs / "fees.md").unlink()
    said = shell("memory", "ingest", str(docs), "--agent", "rio")
    assert f"{docs / 'fees.md'} is not there any more: still remembered; --prune" in said.err
    assert len(data(shell, "ingest")) == 2
    assert ingest(shell, docs, "--prune")["gone"] == [str(docs / "fees.md")]
    assert [each["text"] for each in data(shell, "ingest")] == ["The gateway listens on port 8081."]
    assert shell("memory", "search", "fees", "--agent", "rio", "--json").rows() == []
    missing = shell("memory", "ingest", str(docs / "nothing"), "--agent", "rio")
    assert missing.code == 4


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "\n\n".join(f"Paragraph {n}. " + "words " * 40 for n in range(20)),
        "\n".join(f"line {n} " + "x" * 90 for n in range(100)),
        "word " * 3_000,
        "x" * 10_000,
        "日本" * 2_000,
    ],
)
def test_pieces_are_short_and_lose_no_word(text: str) -> None:
    found = list(pieces(text, PIECE))
    assert all(0 < len(piece) <= PIECE for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_an_empty_file_is_no_data(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    done = ingest(shell, tmp_path / "empty.txt")
    assert list(done["skipped"].values()) == ["empty"]
    assert data(shell, "/") == []


def test_a_name_that_is_not_utf8_stops_no_other_file(shell: Shell, docs: Path) -> None:
    (docs / os.fsdecode(b"bad\xff.md")).write_text("Lost.\n", encoding="utf-8")
    os.mkfifo(docs / "pipe")
    done = ingest(shell, docs)
    assert len(done["added"]) == 2
    assert done["skipped"].pop(f"{docs}/bad\\udcff.md") == "its name is not UTF-8"
    assert done["skipped"].pop(f"{docs}/pipe") == "not a regular file"


def test_what_is_not_read_now_is_not_gone(home: Home, docs: Path) -> None:
    (docs / "link.md").symlink_to(docs / "fees.md")
    with Topics(home, "rio") as topics:
        take_in(topics, [str(docs), str(docs / "link.md")])

        def denied(folder: str) -> object:
            # The tests may run as root, who may read every folder.
            if folder.endswith("/api"):
                raise PermissionError(13, "Permission denied", folder)
            return scandir(folder)

        scandir = os.scandir
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "scandir", denied)
            done = take_in(topics, [str(docs)], prune=True)
        assert done.skipped[f"{docs}/api"] == "Permission denied"
        assert done.gone == []
        assert len(topics.under()) == 3
