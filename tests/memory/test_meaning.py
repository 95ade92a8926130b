"""Vectors: by definition where hashed, real where installed, never of another embedder."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from holdfast.agents.recall import open_recall
from holdfast.codec import encode
from holdfast.errors import ConfigError
from holdfast.memory import vectors
from holdfast.memory.search import Recall
from holdfast.memory.topics import Topics
from holdfast.memory.vectors import build
from holdfast.models.embedders import Hashed, normalised, open_embedder
from holdfast.models.embedding import Served, served
from holdfast.store.home import Home


class Letters:
    """A vector of how often each letter stands in a text."""

    weight = 1.0

    def __init__(self, name: str = "letters", dim: int = 26) -> None:
        self.name, self._dim, self.asked = name, dim, 0

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        self.asked += len(texts)
        return [
            normalised([text.lower().count(chr(97 + n)) for n in range(self._dim)])
            for text in texts
        ]


def defined(text: str, dim: int) -> bytes:
    """The documented hash embedding, written once more."""
    sums = [0] * dim
    for token in text.lower().split()[:512]:
        d = sha256(token.encode()).digest()
        for k in (0, 4, 8, 12):
            sums[(d[k] * 256 + d[k + 1]) % dim] += 1 if d[k + 2] & 1 else -1
    length = math.sqrt(sum(each * each for each in sums))
    return struct.pack(f"{dim}f", *(each / length if length else 0.0 for each in sums))


@pytest.mark.parametrize("dim", [32, 384, 768])
@pytest.mark.parametrize("text", ["", "one", "Two  words\ttwo", "ünï ©", "w " * 9])
def test_hashed_words_equal_their_definition_bit_for_bit(dim: int, text: str) -> None:
    assert open_embedder(f"hash:{dim}").embed([text])[0].tobytes() == defined(text, dim)


@pytest.mark.parametrize("dim", [32, 384, 768])
def test_only_512_words_are_hashed(dim: int) -> None:
    words = [f"word{number}" for number in range(600)]
    long, cut = Hashed(dim).embed([" ".join(words), " ".join(words[:512])])
    assert long == cut
    assert long.tobytes() == defined(" ".join(words), dim)
    assert long != Hashed(dim).embed([" ".join(words[:511])])[0]


def test_an_embedder_that_is_unknown_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as refused:
        open_embedder("nothing:at all")
    assert "minilm" in (refused.value.hint or "")
    for wrong in ("hash:0", "hash:x"):
        with pytest.raises(ConfigError):
            open_embedder(wrong)
    for wrong in ("openai-compatible:m", "ollama:m@http://u:p@h/v1"):
        with pytest.raises(ConfigError):
            served(wrong)


def test_minilm_leaves_nothing_in_the_home_of_its_user(tmp_path: Path) -> None:
    """Its library sends telemetry unless it is told before it is loaded."""
    program = "from holdfast.models.embedders import open_embedder as o; o('minilm').embed(['a'])"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment = {**kept, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True)
    assert not list(tmp_path.rglob("*"))


def test_minilm_finds_what_shares_no_word_with_the_question(home: Home) -> None:
    pytest.importorskip("onnxruntime")
    with Topics(home, "rio") as topics:
        wanted = topics.add("facts", "The physician prescribed antibiotics for the infection")
        topics.add("facts", "Quarterly revenue rose in the northern region")
        topics.add("facts", "The bicycle has a flat tyre")
    with open_recall(home, embedder=partial(open_embedder, "minilm")) as recall:
        hit = recall.search("what medicine did the doctor give")[0]
    assert hit.id == wanted
    assert hit.parts["words"] == 0 and hit.parts["meaning"] > 0.1


def test_the_same_text_has_the_same_vector_beside_any_other() -> None:
    pytest.importorskip("onnxruntime")
    minilm = open_embedder("minilm")
    texts = ["a short one", "a much longer text " * 20, ""]
    assert minilm.embed(texts) == [minilm.embed([text])[0] for text in texts]


def remember(home: Home, count: int, agent: str = "rio", first: int = 0) -> list[str]:
    with Topics(home, agent) as topics:
        names = (word(number) for number in range(first, first + count))
        return [topics.add("facts", name) for name in names]


def word(number: int) -> str:
    """Another word for each number, of letters that lie apart."""
    digest = sha256(str(number).encode()).digest()
    return "".join(chr(97 + each % 26) for each in digest[:12])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS from 40 vectors on, not from thousands."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(vectors, "EXACT", 40)


@pytest.fixture
def recall(home: Home) -> Iterator[Recall]:
    pytest.importorskip("numpy")
    with open_recall(home, embedder=Letters) as made:
        yield made


def best(recall: Recall, query: str, **more: Any) -> list[tuple[str, float]]:
    return [(hit.id, round(hit.score, 5)) for hit in recall.search(query, **more)]


def test_faiss_finds_what_a_comparison_one_by_one_finds(
    home: Home, recall: Recall, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    remember(home, 300)
    exact = [best(recall, word(1000 + n)) for n in range(20)]
    ivf = build(recall.index, "letters")
    assert ivf is not None and (ivf.dim, ivf.size) == (26, 300)
    monkeypatch.setattr(vectors, "EXACT", 40)
    probed = [best(recall, word(1000 + n)) for n in range(20)]
    same = sum(len({*a} & {*b}) for a, b in zip(exact, probed, strict=True))
    # 8 of 37 lists, and vectors that lie nowhere near each other.
    assert 0.7 * 160 <= same <= 160


@pytest.mark.usefixtures("few")
def test_what_was_added_after_faiss_was_built_is_found(home: Home, recall: Recall) -> None:
    remember(home, 100)
    recall.search("a")
    assert build(recall.index, "letters") is not None
    (new,) = remember(home, 1, first=5000)
    assert recall.search(word(5000))[0].id == new
    remember(home, 3, agent="mia", first=6000)
    assert recall.search(word(6001), agents=["mia"])[0].text == word(6001)


@pytest.mark.usefixtures("few")
def test_the_file_of_faiss_is_made_when_it_is_due_and_may_vanish(
    home: Home, path: str, recall: Recall
) -> None:
    remember(home, 60)
    before = best(recall, word(3))
    wait_for_builder()
    (file,) = Path(path, "cache/memory").glob("vectors-*.faiss")
    assert recall.vectors is not None and recall.vectors.ivf() is not None
    assert best(recall, word(3)) == before
    file.unlink()
    with open_recall(home, embedder=Letters) as again:
        assert best(again, word(3)) == before
    file.write_bytes(b"not an index")
    with open_recall(home, embedder=Letters) as again:
        assert best(again, word(3)) == before


def wait_for_builder() -> None:
    for thread in threading.enumerate():
        if thread.name == "holdfast-ivf":
            thread.join()


@pytest.mark.usefixtures("few")
def test_vectors_of_another_embedder_or_dimension_are_not_used(home: Home, recall: Recall) -> None:
    remember(home, 60)
    recall.search("a")
    assert build(recall.index, "letters") is not None
    for other in (Letters("other"), Letters("other-20", 20)):
        with open_recall(home, embedder=partial(next, iter([other]))) as again:
            assert again.vectors is not None and again.vectors.ivf() is None
            assert again.search(word(7))[0].text == word(7)
            assert other.asked == 61
            wait_for_builder()
            ivf = again.vectors.ivf()
            assert ivf is not None and ivf.embedder == other.name


@pytest.mark.usefixtures("few")
def test_a_forgotten_text_leaves_the_file_of_faiss(home: Home, recall: Recall) -> None:
    faiss = pytest.importorskip("faiss")
    ids = remember(home, 100)
    recall.search("a")
    build(recall.index, "letters")
    assert recall.search(word(42))[0].id == ids[42]
    with Topics(home, "rio") as topics:
        topics.forget([ids[42]])
    assert ids[42] not in [hit.id for hit in recall.search(word(42))]
    assert recall.vectors is not None and (ivf := recall.vectors.ivf()) is not None
    assert ivf.size == 99
    assert faiss.read_index(f"{recall.index.folder}/{ivf.file}").ntotal == 99


@pytest.mark.usefixtures("few")
def test_what_a_builder_left_that_was_killed_is_not_used(home: Home, recall: Recall) -> None:
    remember(home, 60)
    before = best(recall, word(3))
    wait_for_builder()
    assert recall.vectors is not None
    ivf, folder = recall.vectors.ivf(), Path(str(recall.index.folder))
    assert ivf is not None
    half = folder / "vectors-dead.faiss"
    half.write_bytes((folder / ivf.file).read_bytes()[:500])
    assert best(recall, word(3)) == before
    assert build(recall.index, "letters") is not None
    assert not half.exists()
    # A whole file of other vectors under the name that counts is found out by its centroids.
    holds = recall.vectors.ivf()
    assert holds is not None
    remember(home, 60, first=500)
    recall.search("a")
    wait_for_builder()
    other = build(recall.index, "letters")
    assert other is not None
    (folder / holds.file).write_bytes((folder / other.file).read_bytes())
    with recall.index.writing():
        recall.index.state("ivf", encode(holds._asdict()).decode())
    with open_recall(home, embedder=Letters) as again:
        assert again.search(word(503))[0].text == word(503)


def test_the_same_text_is_embedded_once_also_after_reindex(home: Home, recall: Recall) -> None:
    embedder = recall.vectors.embedder if recall.vectors else None
    assert isinstance(embedder, Letters)
    with Topics(home, "rio") as topics:
        for _ in range(10):
            topics.add("facts", "The same")
    recall.search("x")
    assert embedder.asked == 2
    recall.reindex()
    recall.search("x")
    assert embedder.asked == 3


def test_without_patience_texts_are_found_by_their_words(home: Home, recall: Recall) -> None:
    remember(home, 5)
    assert recall.search(word(2), patience=-1.0)[0].parts.keys() == {"words", "session", "trust"}
    assert "5 texts are not embedded yet" in recall.warnings[0]
    assert "meaning" in recall.search(word(2))[0].parts
    assert recall.warnings == []


# --- servers --------------------------------------------------------------------------------


class Server(HTTPServer):
    asked: list[tuple[str, str | None, Any]]
    status = 200


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        rows = [
            {"index": n, "embedding": [text.count("a"), text.count("b"), 0.5]}
            for n, text in enumerate(body["input"])
        ]
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps({"data": rows[::-1]}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal of the tests."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Answers)
    made.asked = []
    thread = Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def opened(ref: str) -> Served:
    found = served(ref)
    assert found is not None
    return found


def test_a_server_of_openais_protocol_embeds(
    home: Home, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy")
    address = f"http://127.0.0.1:{server.server_port}/v1"
    monkeypatch.setenv("OLLAMA_BASE_URL", address)
    monkeypatch.setenv("OLLAMA_API_KEY", "k1")
    (vector,) = opened("ollama:any").embed(["aab"])
    assert list(vector) == pytest.approx(normalised([2, 1, 0.5]))
    path, key, body = server.asked[-1]
    assert (path, key, body["model"]) == ("/v1/embeddings", "Bearer k1", "any")
    # An address in a setting may be anybody's: it gets no key.
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "k2")
    opened(f"openai-compatible:m@{address}").embed(["b"])
    assert [key for _, key, _ in server.asked[1:]] == [None]


def test_a_server_that_fails_leaves_the_words(
    home: Home, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy")
    server.status = 500
    (wanted,) = remember(home, 1)
    ref = f"openai-compatible:m@http://127.0.0.1:{server.server_port}/v1"
    with open_recall(home, embedder=partial(opened, ref)) as recall:
        assert recall.search(word(0))[0].id == wanted
        assert "searched by words only" in recall.warnings[0]
