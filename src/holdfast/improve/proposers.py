"""Planners and executors that need no model: search over numbers, mutation, patches, nothing.

A planner writes into its plan all that the executor needs: each step holds an edit.  What was
tried before is in the request (`input.proposals`), and chance comes from its seed alone.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode
from holdfast.contracts.kind import object_of, objects_in
from holdfast.errors import Conflict, NotFound, UsageError
from holdfast.improve.search import DRAWS, Draw, Files, Tried, cma, constants, next_texts, rewritten
from holdfast.text import clip, plural
from holdfast.userfile import read

_STRING = r'"(?:[^"\\]|\\.)*"'
_CHANGE = re.compile(rf"(?:line (\d+): )?replace ({_STRING}) by ({_STRING})")
_NOTHING = "nothing"
_WRITE = re.compile(rf"write ({_STRING})")
_VALUES = re.compile(r"values (\{.*\})", re.DOTALL)
_SHOWN, _PARTS = 3, 8
NAMES = (*DRAWS, "mutate", "patches:FILE", "null")


Plan = Callable[[Record, Files], Record]


class Edit(NamedTuple):
    file: str
    old: str
    """Empty: the file is written whole."""
    new: str
    line: int | None = None
    """Counted from 1; None: `old` is in the file once."""

    def change(self) -> str:
        if not self.old:
            return f"write {json.dumps(self.new)}"
        where = f"line {self.line}: " if self.line else ""
        return f"{where}replace {json.dumps(self.old)} by {json.dumps(self.new)}"


def builtin(name: str) -> Plan:
    """What plans by a name; an error if there is none, or it lacks its library or list."""
    kind, _, argument = name.partition(":")
    if name in DRAWS:
        if name != "search:random":
            cma()
        return partial(_searched, DRAWS[name])
    if kind == "patches" and argument:
        _listed(argument)
        return partial(_patched, argument)
    plain: dict[str, Plan] = {"mutate": _mutated, "null": _unchanged, "direct": _direct}
    if name not in plain:
        raise UsageError(f"no such proposer: {name[:80]}", hint=", ".join(NAMES))
    return plain[name]


def carry_out(plan: Record, files: Files) -> None:
    """Make the edits of a plan; Conflict where the text is not what the plan says."""
    for step in objects_in(plan.get("steps")):
        path, change = str(step.get("file")), str(step.get("change"))
        if whole := _WRITE.fullmatch(change):
            files.write(path, json.loads(whole[1]))
        elif found := _CHANGE.fullmatch(change):
            old, new = json.loads(found[2]), json.loads(found[3])
            lines, at = files.read(path).split("\n"), int(found[1] or 0) - 1
            if 0 <= at < len(lines) and lines[at] == old:
                lines[at] = new
                files.write(path, "\n".join(lines))
            else:
                replace_once(files, path, old, new)
        elif change != _NOTHING:
            raise UsageError(f"step {step.get('step')} holds no edit: {change[:80]!r}")


def replace_once(files: Files, path: str, old: str, new: str) -> None:
    text = files.read(path)
    if not old or text.count(old) != 1:
        raise Conflict(
            f"the text to replace in {path} is there {text.count(old) if old else 0} times",
            hint="quote enough of it to stand there once",
        )
    files.write(path, text.replace(old, new))


# --- the parts of a plan --------------------------------------------------------------------


def _place(request: Record) -> int:
    """The place of a planner among those of the round: planner_a is 0."""
    letters = str(request["id"]).rpartition("_")[2]
    return int(letters) - 1 if letters.isdigit() else ord(letters[0].lower()) - ord("a")


def _random(request: Record) -> Random:
    return Random(f"{request['seed']}/{request['round']}/{request['id']}")


def _hypotheses(request: Record) -> set[str]:
    return {each["plan"]["hypothesis"] for each in request["input"].get("proposals", ())}


def _plan(
    request: Record, hypothesis: str, edits: Sequence[Edit], rationale: str, family: str = ""
) -> Record:
    number, planner, given = request["round"], request["id"], request["input"]
    return {
        "plan_id": f"round_{number}_{planner}",
        "planner_id": planner,
        "round": number,
        "hypothesis": hypothesis,
        # A built-in has no approach of its own: the first that is free.
        "approach_family": family
        or next(iter(request["input"].get("families", ())), "optimization"),
        "critic_approved": False,
        "target_files": list(dict.fromkeys(edit.file for edit in edits)),
        "steps": [
            {"step": at, "file": edit.file, "change": edit.change()}
            for at, edit in enumerate(edits, 1)
        ],
        "expected_outcome": {
            "metric": given.get("metric", "primary"),
            "estimated_impact": "unknown",
            "rationale": rationale,
        },
        "history_reference": {"builds_on": "none", "avoids": "none"},
    }


# --- search ---------------------------------------------------------------------------------


def _searched(draws: Sequence[tuple[str, Draw]], request: Record, files: Files) -> Record:
    given = request["input"]
    found = constants(files, given.get("constants", ()))
    if not found:
        raise NotFound(
            "no numbers to search over",
            hint="declare them in a comment: `# search: LOW..HIGH`, or name another planner",
        )
    sign = 1 if given.get("direction") == "lower_is_better" else -1
    tried: list[Tried] = []
    for row in given.get("proposals", ()):
        if match := _VALUES.search(row["plan"]["expected_outcome"]["rationale"]):
            known = object_of(decode(match[1].encode(), limit=MAX_DOCUMENT))
            point = [each.share(float(known.get(each.name, each.value))) for each in found]
            tried.append(Tried(point, None if row["score"] is None else sign * row["score"]))
    random = _random(request)
    way, draw = draws[_place(request) % len(draws)]
    texts = next_texts(found, draw, tried, random)
    lines: dict[tuple[str, int], list[tuple[Any, str]]] = {}
    for each, text in zip(found, texts, strict=True):
        lines.setdefault((each.path, each.line), []).append((each, text))
    edits: list[Edit] = []
    for (path, number), numbers in lines.items():
        line = files.read(path).split("\n")[number]
        new = rewritten(line, numbers)
        edits += [Edit(path, line, new, number + 1)] if new != line else []
    moved = [
        f"{each.name} = {text}"
        for each, text in zip(found, texts, strict=True)
        if float(text) != each.value
    ]
    more = f" and {plural(len(moved) - _SHOWN, 'more number')}" if len(moved) > _SHOWN else ""
    values = {each.name: float(text) for each, text in zip(found, texts, strict=True)}
    return _plan(
        request,
        f"{', '.join(moved[:_SHOWN])}{more} ({way} of round {request['round']}) score better",
        edits,
        f"{way}, after {plural(len(tried), 'measured point')}; values {json.dumps(values)}",
    )


# --- mutation -------------------------------------------------------------------------------

_OTHERS: Mapping[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
_WORDS = {"min": "max", "max": "min", "any": "all", "all": "any", "True": "False", "False": "True"}


def _mutated(request: Record, files: Files) -> Record:
    """One small change of Python source that was not tried before."""
    done = _hypotheses(request)
    edits = [
        edit
        for path in sorted(files.paths())
        if path.endswith(".py")
        for edit in mutations(path, files.read(path))
        if _hypothesis(edit) not in done
    ]
    if not edits:
        raise NotFound("no mutation is left to try", hint="name another planner")
    # No two planners of a round try the same.
    part = edits[_place(request) :: _PARTS] or edits
    edit = _random(request).choice(part)
    return _plan(request, _hypothesis(edit), [edit], f"one of {plural(len(edits), 'mutation')}")


def _hypothesis(edit: Edit) -> str:
    """Named by a digest too: hypotheses are compared by their words, not by operators."""
    text = f"{edit.file}, line {edit.line}: `{edit.new.strip()}` for `{edit.old.strip()}`"
    return f"{text}, mutation {sha256(text.encode()).hexdigest()[:8]}"


def mutations(path: str, text: str) -> list[Edit]:
    """Every mutation of a file, each on one line."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines, found = text.split("\n"), dict[tuple[int, str], Edit]()
    for node in ast.walk(module):
        for new in _changes(node):
            if isinstance(node, ast.expr | ast.stmt) and node.lineno == node.end_lineno:
                row, old = node.lineno - 1, lines[node.lineno - 1]
                line = old.encode()
                changed = line[: node.col_offset] + new.encode() + line[node.end_col_offset :]
                if (other := changed.decode()) != old:
                    found[row, other] = Edit(path, old, other, row + 1)
    return [found[key] for key in sorted(found)]


def _changes(node: ast.AST) -> Iterator[str]:
    """What could stand in the place of an expression or a statement."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.Compare(ops=[op]):
            for other in _OTHERS.get(type(op), ()):
                new = cast("Any", copy(node))
                new.op, new.ops = other(), [other()]
                yield ast.unparse(new)
        case ast.Constant(bool() as value) | ast.Name(str() as value) if str(value) in _WORDS:
            yield _WORDS[str(value)]
        case ast.Constant(int() as value) if not isinstance(value, bool):
            yield from (str(value + 1), str(value - 1), str(value * 2))
        case ast.Constant(float() as value):
            yield from (f"{value * 1.5:.6g}", f"{value / 1.5:.6g}")
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand)
        case ast.Break() | ast.Continue():
            yield "continue" if isinstance(node, ast.Break) else "break"
        case ast.Assign() | ast.AugAssign():
            yield "pass"
        case ast.Expr(value) if not isinstance(value, ast.Constant):
            yield "pass"
        case _:
            pass


# --- patches, and nothing -------------------------------------------------------------------


def _patched(path: str, request: Record, files: Files) -> Record:
    """A recorded list, in its order: `[{"hypothesis": …, "edits": [{"file": …, …}]}]`."""
    done = _hypotheses(request)
    patches = [each for each in _listed(path) if each["hypothesis"] not in done]
    if _place(request) >= len(patches):
        raise NotFound(f"{path}: every patch was tried", hint="add one to the list")
    patch = patches[_place(request)]
    edits = [
        Edit(str(each["file"]), str(each.get("replace", "")), str(each.get("by", "")))
        for each in objects_in(patch["edits"])
    ]
    family = str(patch.get("approach_family", ""))
    return _plan(request, str(patch["hypothesis"]), edits, f"from {path}", family)


def _listed(path: str) -> list[dict[str, Any]]:
    try:
        listed = list(objects_in(decode(read(path), limit=MAX_DOCUMENT)))
        wrong = next((each for each in listed if not _is_patch(each)), None)
        if wrong is None and listed:
            return listed
        why = f"no hypothesis or edits: {clip(str(wrong), 80)}" if wrong else "empty"
    except (OSError, DecodeError) as error:
        why = str(error)
    hint = '`[{"hypothesis": "…", "edits": [{"file": "f.py", "replace": "1", "by": "2"}]}]`'
    raise UsageError(f"{path} is no list of patches: {why}", hint=hint)


def _is_patch(value: Mapping[str, Any]) -> bool:
    edits = list(objects_in(value.get("edits")))
    return bool(value.get("hypothesis") and edits and all(each.get("file") for each in edits))


def _unchanged(request: Record, files: Files) -> Record:
    """Changes nothing: the control that must never win."""
    path = next(iter(sorted(files.paths())), "")
    hypothesis = f"Nothing is changed by {request['id']} in round {request['round']}"
    plan = _plan(request, hypothesis, [Edit(path, "", "")], "a control")
    return {**plan, "steps": [{"step": 1, "file": path, "change": _NOTHING}]}


def _direct(request: Record, files: Files) -> Record:
    """Leaves it to an executor that is no built-in what to try."""
    given = request["input"]
    aim = given["objective"] or f"improve {given['metric']}"
    change = next(iter(given["ideas"]), f"{aim} (round {request['round']}, {request['id']})")
    plan = _plan(request, change, [], "the executor chooses the change")
    history = {"builds_on": "none", "avoids": "what failed before"}
    steps = [{"step": 1, "file": ".", "change": change}]
    return {**plan, "steps": steps, "history_reference": history}
