"""Real text to search: what the Python installation of this machine says about itself.

Paragraphs of docstrings and comments of the standard library and of installed packages, and of
their documentation.  No paragraph stands there twice.  Their vectors are made once, and kept
outside of the checkout under the sha256 of the texts.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import sysconfig
from array import array
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

SHORTEST, LONGEST = 60, 360
CACHE = Path(os.environ.get("HOLDFAST_BENCH_CACHE", "~/.cache/holdfast-bench")).expanduser()
_BATCH = 500
_NOT_LIBRARY = ("test", "site-packages", "idlelib", "lib2to3")


def paragraphs(count: int) -> list[str]:
    """So many paragraphs of 60 to 360 characters, in an order by chance.

    The same ones on the same installation: they are kept beside their vectors.
    """
    file = CACHE / "paragraphs.json"
    if not file.exists():
        found = list(_distinct(_texts()))
        Random(1).shuffle(found)
        CACHE.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.rename(file)
    return json.loads(file.read_text(encoding="utf-8"))[:count]


def _distinct(texts: Iterator[str]) -> Iterator[str]:
    seen = set[str]()
    for text in texts:
        for part in re.split(r"\n\s*\n", text):
            said = " ".join(part.split())
            letters = sum(each.isalpha() for each in said)
            if len(said) < SHORTEST or letters < len(said) * 0.6:
                continue
            said = said[:LONGEST]
            if (key := said.lower()) not in seen:
                seen.add(key)
                yield said


def _texts() -> Iterator[str]:
    paths = sysconfig.get_paths()
    for folder in dict.fromkeys((paths["stdlib"], paths["purelib"])):
        for path in sorted(Path(folder).rglob("*")):
            if folder == paths["stdlib"] and "site-packages" in path.parts:
                continue
            if path.suffix == ".py":
                yield from _said_in(path)
            elif path.suffix in (".md", ".rst", ".txt") or path.name == "METADATA":
                yield path.read_text(encoding="utf-8", errors="replace")


def _said_in(path: Path) -> Iterator[str]:
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    yield "\n".join(
        line.strip().removeprefix("#").strip() if line.lstrip().startswith("#") else ""
        for line in source.splitlines()
    )


def docstrings() -> list[tuple[str, str]]:
    """Module and name of each documented function of the standard library, and its docstring."""
    found = list[tuple[str, str]]()
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted([*folder.glob("*.py"), *folder.glob("[a-z]*/*.py")]):
        if path.parent.name in _NOT_LIBRARY:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                said = " ".join((ast.get_docstring(node) or "").split())[:1_000]
                if len(said) >= SHORTEST:
                    module = path.parent.name if path.stem == "__init__" else path.stem
                    found.append((f"{module} {node.name}", said))
    return found


def vectors(texts: list[str], name: str, embed: Callable[[list[str]], list[Any]]) -> Any:
    """A row of floats for each text: from the cache, or made and kept there batch by batch."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = list[Any]()
    for start in range(0, len(texts), _BATCH):
        some = texts[start : start + _BATCH]
        digest = sha256("\0".join(some).encode("utf-8", "replace")).hexdigest()
        file = folder / f"{digest[:24]}.f32"
        if not file.exists():
            made = embed(some)
            part = file.with_suffix(f".{os.getpid()}")
            part.write_bytes(b"".join(array("f", each).tobytes() for each in made))
            part.rename(file)
            print(f"{name}: {start + len(made):,} of {len(texts):,} texts", file=sys.stderr)
        rows.append(np.fromfile(file, np.float32).reshape(len(some), -1))
    return np.concatenate(rows)
