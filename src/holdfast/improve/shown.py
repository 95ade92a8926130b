"""A campaign as its documents show it, ours or another system's, wherever they lie.

Documents are read liberally: of a file that drifted, what is plain counts and the rest is missing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from holdfast.codec import MAX_DOCUMENT, DecodeError, decode
from holdfast.contracts.kind import object_of, objects_in
from holdfast.contracts.kinds import kind
from holdfast.errors import NotFound
from holdfast.improve.journal import AGENT_SETTINGS
from holdfast.improve.overview import Curve, Point
from holdfast.store.backend import Backend
from holdfast.userfile import read

RAW, BASELINE = "tracking/raw_data.json", "tracking/baseline.json"
SETTINGS = "config/settings.json"
_MARKS = (RAW, BASELINE, AGENT_SETTINGS, SETTINGS)
_LETTER = re.compile(r"(?:planner|executor)_(\w+)$")
_ROUND = re.compile(r"round_(\d{1,9})(?:\.json)?")

Read = Callable[[str], bytes | None]
Names = Callable[[str], Iterable[str]]


class Shown:
    """Documents are read when they are asked for."""

    def __init__(self, read: Read, names: Names) -> None:
        self._read, self._names = read, names

    @cached_property
    def settings(self) -> dict[str, Any]:
        return self.document(SETTINGS, "settings")

    @cached_property
    def curve(self) -> Curve:
        baseline = self.document(BASELINE, "baseline")
        direction = self.settings.get("benchmark_direction") or baseline.get("direction")
        return Curve(
            list(self._points()),
            direction != "lower_is_better",
            str(self.settings.get("primary_metric") or "primary"),
            number(baseline.get("baseline_score")),
            number(self.settings.get("target_value")),
            number(baseline.get("noise_sd")),
        )

    def rounds(self) -> list[int]:
        """Those with a history, in their order."""
        found = (_ROUND.fullmatch(name) for name in self._names("state/iteration_history"))
        return sorted({int(match[1]) for match in found if match})

    def history(self, number: int) -> dict[str, Any]:
        return self.document(f"state/iteration_history/round_{number}.json", "iteration-history")

    def merge_report(self, number: int) -> dict[str, Any]:
        return self.document(f"state/merge_reports/round_{number}.json", "merge-report")

    def brief(self, number: int) -> dict[str, Any]:
        return self.document(f"state/research_briefs/round_{number}.json", "research-brief")

    def plans(self, number: int) -> list[dict[str, Any]]:
        """The plans of a round, as archived or as they stand."""
        archived = self._all(f"state/plan_archive/round_{number}", "plan")
        return archived or self._all(f"plans/round_{number}", "plan")

    def results(self, number: int) -> list[dict[str, Any]]:
        return self._all(f"state/benchmark_results/round_{number}", "benchmark-result")

    def judged_plans(self, number: int) -> Iterator[dict[str, Any]]:
        """The plans of a round, each with its reviews, its result and what became of it."""
        history = self.history(number)
        won = [object_of(history.get("winner")), *objects_in(history.get("stacked"))]
        merged = {each.get("plan_id") for each in won}
        lost = {each.get("plan_id"): each for each in objects_in(history.get("losers"))}
        results = {each.get("plan_id"): each for each in self.results(number)}
        for plan in self.plans(number):
            name = plan.get("plan_id")
            result, loser = object_of(results.get(name)), object_of(lost.get(name))
            outcome = "merged" if name in merged else result.get("status")
            if outcome == "success":
                outcome = "not merged" if history else "measured"
            failure = loser.get("failure_analysis") or result.get("failure_analysis")
            yield {
                **plan,
                "critic": object_of(plan.get("critic_review")),
                "architect": object_of(plan.get("architect_review")),
                "result": result,
                "outcome": outcome,
                "failure": object_of(failure),
            }

    def document(self, path: str, name: str) -> dict[str, Any]:
        """A document with what could be mended; empty if there is none."""
        return object_of(kind(name).read(object_of(self._value(path))).value)

    def _value(self, path: str) -> Any:
        data = self._read(path)
        try:
            return None if data is None else decode(data, limit=MAX_DOCUMENT)
        except DecodeError:
            return None  # `validate` says what is wrong with it

    def _all(self, folder: str, name: str) -> list[dict[str, Any]]:
        found = sorted(each for each in self._names(folder) if each.endswith(".json"))
        return [self.document(f"{folder}/{each}", name) for each in found]

    def _points(self) -> Iterable[Point]:
        """Candidates in the order of their rounds: of rows, and of histories what rows lack."""
        points: dict[tuple[int, str], Point] = {}
        for row in objects_in(self._value(RAW)):
            value = object_of(kind("raw-data").read(row).value)
            _add(points, value, number(value.get("iteration")), won=value.get("is_winner") is True)
        for at in self.rounds():
            history = self.history(at)
            _add(points, object_of(history.get("winner")), at, won=True)
            for name in ("stacked", "losers", "all_results"):
                for value in objects_in(history.get(name)):
                    _add(points, value, at, won=name == "stacked")
        return [points[key] for key in sorted(points)]


def _add(
    points: dict[tuple[int, str], Point], value: Mapping[str, Any], at: float | None, *, won: bool
) -> None:
    name = str(value.get("plan_id") or value.get("executor_id") or "")
    label = _LETTER.search(name)
    if at is None or label is None:
        return
    key = int(at), label[1]
    known = points.get(key) or Point(key[0], None, False, "other")
    score = number(value.get("benchmark_score"))
    score = number(value.get("score")) if score is None else score
    failure = object_of(value.get("failure_analysis"))
    points[key] = Point(
        key[0],
        score if known.score is None else known.score,
        known.won or won,
        str(value.get("approach_family") or known.family),
        str(value.get("hypothesis") or known.hypothesis),
        str(failure.get("lesson") or value.get("reason") or known.lesson),
    )


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


# --- where it lies --------------------------------------------------------------------------


def in_folder(path: str) -> Shown:
    """The campaign in a folder, or under `.omc/self-improve` of one."""
    tops = [path, os.path.join(path, ".omc", "self-improve")]
    found = [top for top in tops if _is_campaign(top)]
    if not found:
        within = [each for top in tops for each in _folders(os.path.join(top, "topics"))]
        found = [each for each in within if _is_campaign(each)]
    if len(found) != 1:
        known = "; ".join(found[:8])
        raise NotFound(
            f"{len(found) or 'no'} campaigns in {path}",
            hint=f"name one: {known}" if found else f"a folder with {RAW} or {SETTINGS}",
        )
    top = found[0]

    def text(name: str) -> bytes | None:
        with suppress(OSError):
            return read(os.path.join(top, name), plain=True)
        return None

    def names(folder: str) -> list[str]:
        with suppress(OSError):
            return os.listdir(os.path.join(top, folder))
        return []

    return Shown(text, names)


def _is_campaign(top: str) -> bool:
    return any(os.path.isfile(os.path.join(top, name)) for name in _MARKS)


def _folders(top: str) -> list[str]:
    with suppress(OSError):
        return sorted(entry.path for entry in os.scandir(top) if entry.is_dir())
    return []


def of_home(home: Backend, root: str) -> Shown:
    """A campaign of a home, by its folder."""

    def text(name: str) -> bytes | None:
        found = home.document(f"{root}/{name}").read()
        return None if found is None else found.data

    return Shown(text, lambda folder: home.names(f"{root}/{folder}"))
