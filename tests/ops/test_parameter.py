"""Arguments read off a signature."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypedDict, Unpack

import pytest

from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.parameter import Arg, Parameter, parameters


def verb(
    context: Context,
    text: Annotated[str, Arg("The text", positional=True)],
    more: Annotated[Sequence[str], Arg("More texts", positional=True)] = (),
    *,
    from_: Annotated[str, Arg("Who", metavar="AGENT")],
    limit: Annotated[int, Arg("How many")] = 10,
    cost: Annotated[float | None, Arg("How much")] = None,
    kind: Annotated[Literal["a", "b"] | None, Arg("Which")] = None,
    tag: Annotated[list[str] | None, Arg("Labels")] = None,
    data: Annotated[str | None, Arg("More", or_file=True)] = None,
    dry_run: Annotated[bool, Arg("Only say it")] = False,
) -> Show:
    return Show({})


READ = {each.name: each for each in parameters(verb)}


def test_parameters_keep_the_order_of_the_signature_without_the_context() -> None:
    assert list(READ) == [
        *("text", "more", "from", "limit", "cost", "kind", "tag", "data", "dry_run"),
    ]


def test_everything_about_a_parameter_is_read() -> None:
    assert READ["limit"] == Parameter(
        name="limit",
        keyword="limit",
        kind="option",
        type=int,
        required=False,
        repeated=False,
        default=10,
        choices=(),
        help="How many",
        metavar="N",
        or_file=False,
        bare_file=False,
        is_path=False,
    )


def test_kinds_follow_from_position_and_type() -> None:
    assert {name: each.kind for name, each in READ.items()} == {
        "text": "argument",
        "more": "argument",
        "from": "option",
        "limit": "option",
        "cost": "option",
        "kind": "option",
        "tag": "option",
        "data": "option",
        "dry_run": "flag",
    }


def test_what_has_no_default_is_required() -> None:
    assert [name for name, each in READ.items() if each.required] == ["text", "from"]


def test_none_does_not_hide_the_type() -> None:
    assert [READ[name].type for name in ("cost", "kind", "tag", "dry_run")] == [
        float,
        str,
        str,
        bool,
    ]


def test_lists_repeat_and_literals_choose() -> None:
    assert [name for name, each in READ.items() if each.repeated] == ["more", "tag"]
    assert READ["kind"].choices == ("a", "b")
    assert READ["kind"].metavar == "a|b"


def test_a_keyword_of_python_is_spelt_without_its_underscore() -> None:
    assert (READ["from"].keyword, READ["from"].flag, READ["from"].metavar) == (
        "from_",
        "--from",
        "AGENT",
    )
    assert (READ["dry_run"].flag, READ["dry_run"].metavar) == ("--dry-run", "DRY-RUN")


def test_only_what_says_so_reads_files() -> None:
    assert [name for name, each in READ.items() if each.or_file] == ["data"]


class Shared(TypedDict, total=False):
    agent: Annotated[str | None, Arg("Which agent")]


class More(Shared, total=False):
    label: Annotated[Sequence[str], Arg("Labels")]
    quiet: Annotated[bool, Arg("Print nothing")]


def grouped(
    context: Context,
    *,
    limit: Annotated[int, Arg("How many")] = 10,
    **more: Unpack[More],
) -> Show:
    return Show(dict(more))


def test_options_of_a_group_are_read_after_the_verbs_own_and_may_be_left_out() -> None:
    found = parameters(grouped)
    assert [(each.name, each.default, each.required) for each in found] == [
        ("limit", 10, False),
        ("agent", None, False),
        ("label", (), False),
        ("quiet", False, False),
    ]
    assert [each.kind for each in found] == ["option", "option", "option", "flag"]


class Unlabelled(TypedDict, total=False):
    agent: str


def loose(context: Context, **more: Unpack[Unlabelled]) -> Show: ...
def anything(context: Context, **more: Annotated[str, Arg("?")]) -> Show: ...
def bare(context: Context, text: str) -> Show: ...
def unlabelled(context: Context, text: Annotated[str, "no Arg"]) -> Show: ...
def odd(context: Context, text: Annotated[dict[str, Any], Arg("?")]) -> Show: ...
def either(context: Context, text: Annotated[str | int, Arg("?")]) -> Show: ...
def numbers(context: Context, n: Annotated[Literal[1, 2], Arg("?")]) -> Show: ...
def always(context: Context, on: Annotated[bool, Arg("?")] = True) -> Show: ...
def needed(context: Context, on: Annotated[bool, Arg("?")]) -> Show: ...
def placed(context: Context, on: Annotated[bool, Arg("?", positional=True)] = False) -> Show: ...
def taken(context: Context, json: Annotated[str, Arg("?")]) -> Show: ...


@pytest.mark.parametrize(
    "function",
    [
        *(bare, unlabelled, odd, either, numbers, always, needed, placed, taken),
        *(loose, anything),
    ],
)
def test_a_signature_that_callers_could_not_use_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"of .*:{function.__name__}"):
        parameters(function)
