"""A score is a finite number in the agreed place, or there is none."""

from __future__ import annotations

import pytest

from holdfast.improve.scores import NoScore, Score, score_in


@pytest.mark.parametrize(
    "output",
    [
        '{"primary": 85.2, "sub_scores": {"a": 0.9, "b": null}}',
        'noise\n{"primary": 1}\n{"primary": 85.2, "sub_scores": {"a": 0.9, "b": null}}\n\n  \n',
        'noise\r\n{"primary": 85.2, "sub_scores": {"a": 0.9, "b": null}}\r\n',
    ],
)
def test_the_last_line_is_the_result(output: str) -> None:
    assert score_in(output, 0, "json", "primary") == Score(85.2, {"a": 0.9, "b": None})


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("", "no JSON object"),
        ("done", "no JSON object"),
        ("[1]", "no JSON object"),
        ('{"other": 1}', "'primary'"),
        ('{"primary": NaN}', "no JSON object"),
        ('{"primary": Infinity}', "no JSON object"),
        ('{"primary": 1e999}', "no JSON object|not finite"),
        ('{"primary": true}', "no number"),
        ('{"primary": "85"}', "no number"),
        ('{"primary": null}', "no number"),
        ('{"primary": [1]}', "no number"),
        ('{"primary": 1, "primary": 2}', "no JSON object"),
        ('{"primary": 1, "sub_scores": [1]}', "sub_scores"),
        ('{"primary": 1, "sub_scores": {"a": "x"}}', "sub_scores.a"),
        ('{"primary": 1}\ndone', "no JSON object"),
    ],
)
def test_what_is_no_number_is_no_score(output: str, says: str) -> None:
    with pytest.raises(NoScore, match=says):
        score_in(output, 0, "json", "primary")


def test_another_metric_can_be_the_primary_one() -> None:
    assert score_in('{"latency": 3}', 0, "json", "latency").value == 3.0


def test_a_number_stands_alone_in_the_last_line() -> None:
    assert score_in("trained\n 0.5\n", 0, "number", "").value == 0.5
    for wrong in ("nan", "inf", "0.5 s", "True", ""):
        with pytest.raises(NoScore):
            score_in(wrong, 0, "number", "")


def test_a_pass_is_one_and_a_failure_zero() -> None:
    assert score_in("whatever", 0, "pass_fail", "").value == 1.0
    assert score_in("whatever", 1, "pass_fail", "").value == 0.0


def test_metric_lines_are_read_wherever_they_stand() -> None:
    output = "a\nMETRIC primary=3\nMETRIC size=4.5\nMETRIC primary=2\nbye\n"
    assert score_in(output, 0, "metric", "primary") == Score(2.0, {"size": 4.5})
    with pytest.raises(NoScore, match="METRIC speed"):
        score_in(output, 0, "metric", "speed")
    with pytest.raises(NoScore, match="size"):
        score_in("METRIC primary=1\nMETRIC size=big\n", 0, "metric", "primary")


def test_the_result_of_evaluate_is_its_metrics() -> None:
    told = '{"metrics": {"combined_score": 0.8, "validity": 1.0, "error": "none"}}'
    assert score_in(told, 0, "python", "primary") == Score(0.8, {"validity": 1.0})
    assert score_in(told, 0, "python", "validity").value == 1.0
    with pytest.raises(NoScore, match="combined_score"):
        score_in('{"metrics": {"x": 1}}', 0, "python", "primary")
