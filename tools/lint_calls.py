"""The rules of AGENTS.md that ruff cannot check.

    python tools/lint_calls.py [ROOT]

In `src/holdfast`, outside `store/vfs.py`: no opening of files for writing and no `pathlib` call
that changes the disk.  A line that has to (scratch outside the home) says why in a comment:
`# direct write: REASON`.  No module called utils, no class called Manager, no folder without
`__init__.py` (the layer check would not see into it).
Everywhere: no file over 600 lines.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_LINES = 600
LINES_COUNTED_IN = ("src", "prove", "bench", "tools")
WRITERS_ALLOWED = ("src/holdfast/store/vfs.py",)
PATH_WRITERS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to"}
# With one argument this is Path.rename; the call of the vfs takes two.
PATH_MOVERS = {"rename"}
EMPTY_WORDS = re.compile(r"utils?|helpers?|common|misc")
EXCUSE = re.compile(r"# direct write: \S")


class Fault(NamedTuple):
    path: str
    line: int
    says: str


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    faults = sorted(faults_in(root))
    for fault in faults:
        print(f"{fault.path}:{fault.line}: {fault.says}")
    print(f"lint_calls: {len(faults)} fault{'s' * (len(faults) != 1)}")
    return 1 if faults else 0


def faults_in(root: Path) -> Iterator[Fault]:
    for folder in {file.parent for file in (root / "src/holdfast").rglob("*.py")}:
        if not (folder / "__init__.py").exists():
            yield Fault(folder.relative_to(root).as_posix(), 1, "has no __init__.py")
    for top in LINES_COUNTED_IN:
        for file in (root / top).rglob("*.py"):
            path = file.relative_to(root).as_posix()
            if path.startswith(f"{top}/tmp/"):
                continue  # scratch, and other people's packages
            text = file.read_text(encoding="utf-8")
            length = len(text.splitlines())
            if length > MOST_LINES:
                yield Fault(path, length, f"{length} lines; split it below {MOST_LINES}")
            if top == "src":
                yield from faults_of_source(path, text)


def faults_of_source(path: str, text: str) -> Iterator[Fault]:
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        yield Fault(path, error.lineno or 1, error.msg)
        return
    if EMPTY_WORDS.fullmatch(Path(path).stem):
        yield Fault(path, 1, "a module is named after what it knows, not utils or helpers")
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Manager"):
            yield Fault(path, node.lineno, f"{node.name}: say what it does, not that it manages")
    if path in WRITERS_ALLOWED:
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if (says := direct_write(node)) and isinstance(node, ast.expr):
            statement = lines[node.lineno - 1 : node.end_lineno]
            if not any(EXCUSE.search(line) for line in statement):
                yield Fault(path, node.lineno, f"{says}; go through holdfast.store.vfs")


def direct_write(node: ast.AST) -> str | None:
    """What `node` would do to the disk, if anything."""
    if isinstance(node, ast.Attribute) and node.attr in PATH_WRITERS:
        return f".{node.attr} changes the disk"
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Name("open") | ast.Attribute(ast.Name("io" | "codecs"), "open"):
            if may_write(mode_of(node, 1)):
                return "open() for writing"
        case ast.Attribute(_, "open"):
            # Path.open(mode); what takes a name and flags is a directory of the vfs.
            if len(node.args) < 2 and may_write(mode_of(node, 0), names_too=True):
                return ".open() for writing"
        case ast.Attribute(_, name) if name in PATH_MOVERS:
            if len(node.args) == 1 and not node.keywords:
                return f"Path.{name}"
        case _:
            pass
    return None


def mode_of(call: ast.Call, position: int) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == "mode":
            return keyword.value
    return call.args[position] if len(call.args) > position else None


def may_write(mode: ast.expr | None, *, names_too: bool = False) -> bool:
    """Whether a mode opens for writing; one we cannot read does, unless it may be a name."""
    match mode:
        case None:
            return False
        case ast.Constant(str(text)):
            return not set(text) - set("rwaxbtU+") and bool(set(text) & set("wax+"))
        case _:
            return not names_too


if __name__ == "__main__":
    sys.exit(main())
