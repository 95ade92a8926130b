"""The table as a tree of Click commands, and a command line as a request.

Click parses and writes the help; it runs nothing.  Listing commands imports no verb: a command
reads its parameters off its function only when its own arguments are parsed or explained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from holdfast import __version__
from holdfast.cli.arguments import wants_json, with_files
from holdfast.cli.usage import NoVerb, translated
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.operation import CLI, Operation, Table, example, read
from holdfast.ops.parameter import Parameter, parameters

PROGRAM = "holdfast"
TAGLINE = "Durable state for fleets of LLM agents, in files you can read."
HOME_HELP = "The home; else $HOLDFAST_HOME, the nearest .holdfast/ above, the user's own"
LAYOUT_HELP = "Directory layout: holdfast, teleo, luka, qjson, logist, omc"
COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"

# What only this face can have, since it is about this face.
COMPLETION = read(
    "completion",
    "Print the script that makes a shell complete our commands",
    "holdfast.cli.completion",
    CLI,
)
VERSION = read("version", "Print the version", "holdfast.cli.commands", CLI)


class Request(NamedTuple):
    """A command line that makes sense."""

    operation: Operation
    arguments: Mapping[str, Any]
    home: str | None
    layout: str | None
    json: bool


def parse(words: list[str], table: Table) -> Request | str:
    """The verb that the words ask for, or the help, as text; UsageError if they ask nothing."""
    root = tree(table)
    said = _Globals()
    try:
        # Click takes words off the list it is given.
        with root.make_context(PROGRAM, list(words), obj=said) as context:
            operation, arguments = root.invoke(context)
    except _HelpWanted as wanted:
        return wanted.text
    except _VersionWanted:
        return Request(VERSION, {}, None, None, wants_json(words))
    except click.UsageError as error:
        raise translated(error, table.seen_by("cli")) from None
    return Request(operation, arguments, said.home, said.layout, said.json)


def complete(table: Table, question: str) -> int:
    """Print what could come next on the line that a shell describes in its variables."""
    from click.shell_completion import shell_complete

    extra = {"obj": _Globals()}
    return shell_complete(tree(table), extra, PROGRAM, COMPLETE_VARIABLE, question)


@example("holdfast --version")
def version(context: Context) -> Show:
    return Show({"version": __version__}, text=f"{PROGRAM} {__version__}")


def tree(table: Table) -> click.Group:
    """The root command, with all that the table lets a command line do."""
    return _Root(table.seen_by("cli"))


class _Globals:
    """What `--home`, `--layout` and `--json` said, before or after the verb."""

    home: str | None = None
    layout: str | None = None
    json: bool = False


class _HelpWanted(Exception):
    """`--help` stood somewhere: nothing else matters."""

    def __init__(self, text: str) -> None:
        self.text = text


class _VersionWanted(Exception):
    """`--version` stood somewhere: nothing else matters."""


# --- commands -------------------------------------------------------------------------------


class Verb(click.Command):
    """One operation; what it takes is read off its function when it is needed."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(
            operation.verb, short_help=operation.summary, add_help_option=False, epilog=None
        )
        self.operation = operation
        self._parameters: tuple[Parameter, ...] | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        if self._parameters is None:
            self._parameters = parameters(self.operation.load())
        return self._parameters

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # One set of objects per command: Click compares them by identity.
        if not self.params:
            self.params = [*map(_click_parameter, self.parameters), *_global_options()]
        return self.params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            # Click forgets where it was when an option lacks its value.
            error.ctx = error.ctx or ctx
            raise

    def invoke(self, ctx: click.Context) -> tuple[Operation, dict[str, Any]]:
        given = {
            each.keyword: list(value) if each.repeated else value
            for each in self.parameters
            # Left out: the signature alone knows the default.
            if _is_given(value := ctx.params[each.keyword])
        }
        return self.operation, with_files(self.parameters, given)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        needed = [
            f"{each.flag} {each.metavar}"
            for each in self.parameters
            if each.required and each.kind == "option"
        ]
        arguments = [piece for each in self.get_params(ctx) for piece in each.get_usage_pieces(ctx)]
        return [*needed, "[OPTIONS]", *arguments]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from inspect import cleandoc

        more = cleandoc(self.operation.load().__doc__ or "")
        self.help = f"{self.operation.summary}.\n\n{more}"
        super().format_help_text(ctx, formatter)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        taken = [each for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        if taken:
            with formatter.section("Arguments"):
                formatter.write_dl([each.get_help_record(ctx) for each in taken])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = {each.keyword for each in self.parameters if each.kind != "argument"}
        records = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.name in own]
        if records:
            with formatter.section("Options"):
                formatter.write_dl([each for each in records if each])
        formatter.write_paragraph()
        formatter.write("See `holdfast --help` for --home, --layout and --json.\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example"):
            formatter.write(f"{'':{formatter.current_indent}}{self.operation.example}\n")


class _Noun(click.Group):
    """A group whose commands come from the table."""

    def __init__(self, name: str, verbs: Mapping[str, Operation], help: str) -> None:
        super().__init__(
            name,
            help=help,
            callback=_need_verb,
            invoke_without_command=True,
            add_help_option=False,
            params=_global_options(version_hidden=name != PROGRAM),
            subcommand_metavar="VERB …",
            context_settings={"max_content_width": 100},
        )
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._verbs.get(cmd_name)
        return Verb(found) if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(each.verb, each.summary) for each in self._verbs.values()])


class _Root(_Noun):
    def __init__(self, table: Table) -> None:
        verbs = {**table.of_noun(None), COMPLETION.verb: COMPLETION}
        super().__init__(PROGRAM, verbs, TAGLINE)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._table.nouns]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (summary := self._table.nouns.get(cmd_name)) is None:
            return super().get_command(ctx, cmd_name)
        return _Noun(cmd_name, self._table.of_noun(cmd_name), f"{summary}.")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        rows = [
            (noun, f"{summary}: {', '.join(self._table.of_noun(noun))}")
            for noun, summary in self._table.nouns.items()
        ]
        if rows:
            with formatter.section("Nouns, each with verbs of its own"):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write("`holdfast VERB --help` explains a verb and gives an example.\n")


def _need_verb() -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        raise NoVerb(context.command_path, context.get_help())


# --- parameters -----------------------------------------------------------------------------


class _Finite(click.types.FloatParamType):
    """A number; `nan` and `inf` are words that float() happens to read."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def _click_parameter(parameter: Parameter) -> click.Parameter:
    kind = _click_type(parameter)
    if parameter.kind == "argument":
        metavar = parameter.metavar + "…" * parameter.repeated
        return click.Argument(
            [parameter.keyword],
            type=kind,
            nargs=-1 if parameter.repeated else 1,
            required=parameter.required,
            metavar=metavar if parameter.required else f"[{metavar}]",
            help=parameter.help,
        )
    names = [parameter.keyword, parameter.flag]
    if parameter.kind == "flag":
        return click.Option(names, is_flag=True, help=parameter.help)
    # Never `is_flag=False`: to Click that is an option whose value may be left out.
    return click.Option(
        names,
        type=kind,
        multiple=parameter.repeated,
        required=parameter.required,
        metavar=parameter.metavar + "|@FILE|-" * parameter.or_file,
        help=parameter.help + _shown_default(parameter),
    )


def _click_type(parameter: Parameter) -> click.ParamType[Any, Any]:
    if parameter.choices:
        return click.Choice(parameter.choices)
    if parameter.type is int:
        return click.INT
    return _Finite() if parameter.type is float else click.STRING


def _shown_default(parameter: Parameter) -> str:
    shown = _is_given(parameter.default) and parameter.default != ""
    return f"  [default: {parameter.default}]" if shown else ""


def _is_given(value: object) -> bool:
    """Whether a value says anything; 0 and an empty text do."""
    return value is not None and value is not False and value != ()


def _global_options(*, version_hidden: bool = True) -> list[click.Parameter]:
    def keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
        def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
            # Said nowhere here: what was said before the verb stays.
            if _is_given(value):
                setattr(ctx.find_object(_Globals), name, value)

        return callback

    def show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            raise _HelpWanted(ctx.get_help())

    def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            raise _VersionWanted

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option(names, expose_value=False, **settings)

    return [
        option("--home", metavar="DIR", callback=keep("home"), help=HOME_HELP),
        option("--layout", metavar="PRESET", callback=keep("layout"), help=LAYOUT_HELP),
        option("--json", is_flag=True, callback=keep("json"), help="Answer in JSON"),
        option(
            "--version",
            is_flag=True,
            is_eager=True,
            callback=show_version,
            hidden=version_hidden,
            help="Print the version",
        ),
        option(
            "-h", "--help", is_flag=True, is_eager=True, callback=show_help, help="Print this help"
        ),
    ]
