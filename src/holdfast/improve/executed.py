"""Whether the lines that a candidate changed ran at all under the benchmark.

A change that was never executed cannot have made anything better: its score is luck, or somebody
else's.  Only Python can be watched; where a candidate changed anything else, nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from holdfast.git.repository import LINK, Repository
from holdfast.workspace.snapshots import difference

_HUNK = re.compile(rb"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def changed_statements(git: Repository, base: str, candidate: str) -> dict[str, set[int]] | None:
    """By file, the lines of the statements that a candidate changed.

    None if something was changed that cannot be watched.
    """
    found: dict[str, set[int]] = {}
    for path, entry in difference(git.tree(base), git.tree(candidate)).items():
        if not path.endswith(".py") or entry is None or entry.mode == LINK:
            return None
        patch = git.differences(base, candidate, "-p", "-U0", "--no-renames", path=path)
        lines: set[int] = set()
        for first, count in _HUNK.findall(patch):
            begin, many = int(first), int(count or 1)
            # Of lines that are gone, those around count.
            lines |= set(range(begin, begin + many)) if many else {begin, begin + 1}
        try:
            source = git.ask("cat-file", "blob", entry.id)
            found[path] = statements_of(ast.parse(source), lines)
        except (SyntaxError, ValueError, RecursionError):
            return None
    return found


def statements_of(module: ast.Module, lines: Collection[int]) -> set[int]:
    """All lines of the innermost statements that these lines belong to; comments have none."""
    spans = list(_spans(module))
    found: set[int] = set()
    for line in lines:
        around = [span for span in spans if span[0] <= line <= span[1]]
        if around:
            first, last = min(around, key=lambda span: span[1] - span[0])
            found |= set(range(first, last + 1))
    return found


def _spans(module: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of each statement; of one with a body only its head."""
    for node in ast.walk(module):
        if not isinstance(node, ast.stmt) or _is_text(node):
            continue
        if not hasattr(node, "body"):
            yield node.lineno, node.end_lineno or node.lineno
            continue
        below = ast.stmt | ast.excepthandler | ast.match_case
        heads = [each for each in ast.iter_child_nodes(node) if not isinstance(each, below)]
        parts = [cast("Any", part) for each in heads for part in ast.walk(each)]
        lines = [(each.lineno, each.end_lineno) for each in parts if hasattr(each, "lineno")]
        firsts, lasts = zip((node.lineno, node.lineno), *lines, strict=True)
        yield min(firsts), max(lasts)


def _is_text(node: ast.stmt) -> bool:
    """A docstring, or a constant that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def executed_lines(trace: bytes) -> dict[str, set[int]]:
    """What `tracing` wrote, by file."""
    found: dict[str, set[int]] = {}
    for line in trace.splitlines():
        number, _, name = line.partition(b" ")
        if number.isdigit() and name:
            found.setdefault(name.decode("utf-8", "surrogateescape"), set()).add(int(number))
    return found


def never_ran(changed: Mapping[str, set[int]], ran: Mapping[str, set[int]]) -> bool:
    """Whether some Python ran under the benchmark, and nothing of what was changed."""
    return bool(ran) and not any(lines & ran.get(path, set()) for path, lines in changed.items())
