"""The verbs of models, and the choice of one."""

from __future__ import annotations

import os
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.agents.document import object_at
from holdfast.errors import ConfigError, UsageError
from holdfast.ids import agent_id
from holdfast.layout import HOLDFAST
from holdfast.models.asking import Fallback, Limited, Patience, Retrying
from holdfast.models.output import check_schema
from holdfast.models.protocol import Message, Model, Reply, Request
from holdfast.models.registry import open_model, providers
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.text import duration

if TYPE_CHECKING:
    from holdfast.store.home import Home

VARIABLE = "HOLDFAST_MODEL"
_RUNS_COMMANDS = frozenset({"command", "acp"})
_SHOWN = 400


@example("holdfast model list", columns="provider what example needs")
def list_(
    context: Context,
    *,
    agent: Annotated[
        str | None, Arg("Say also which one this agent asks if nobody names one")
    ] = None,
) -> Rows:
    rows = [
        {
            "provider": each.name,
            "what": each.what,
            "example": each.example,
            "needs": f"holdfast[{each.extra}]" if each.extra else "",
        }
        for each in providers().values()
    ]
    counts: dict[str, Any] = {"providers": len(rows)}
    if agent is not None:
        counts["asked"] = unsaid(context.home(), agent_id(agent).lower())
    return Rows(rows, counts)


@example("holdfast model test scripted:echo")
def test(
    context: Context,
    model: Annotated[str, Arg("provider:name", positional=True)],
    *,
    prompt: Annotated[str, Arg("What to ask", or_file=True)] = "Say hello in five words.",
    schema: Annotated[
        str | None, Arg("A JSON Schema that the reply has to meet", or_file=True)
    ] = None,
    max_tokens: Annotated[int | None, Arg("The most that it may say")] = None,
    timeout: Annotated[str, Arg("Give up after so long", metavar="D")] = "2m",
    tries: Annotated[int, Arg("How often to ask where asking again can help")] = 1,
) -> Show:
    asked = Request(
        (Message("user", prompt),),
        None if schema is None else schema_from(schema),
        max_tokens,
        timeout=duration(timeout),
    )
    opened = Retrying(open_model(model), context.clock, SystemRandom(), Patience(tries=tries))
    try:
        reply = opened.ask(asked)
    finally:
        opened.close()
    read, wrote = reply.usage.input_tokens, reply.usage.output_tokens
    tokens = "tokens unknown" if read is None else f"{read} tokens in, {wrote or 0} out"
    cost = "cost unknown" if reply.cost_usd is None else f"{reply.cost_usd:g} USD"
    more = f", {len(reply.tries) + 1} tries" if reply.tries else ""
    figures = f"{reply.model}: {tokens}, {cost}, {reply.seconds:.2f} s{more}"
    return Show(reply_fields(reply), text=f"{reply.text}\n\n{figures}")


def reply_fields(reply: Reply) -> dict[str, Any]:
    """A reply for `--json`."""
    return {
        "model": reply.model,
        "text": reply.text,
        "value": reply.value,
        **reply.usage._asdict(),
        "cost_usd": reply.cost_usd,
        "seconds": round(reply.seconds, 3),
        "finish": reply.finish,
        "tries": [each.told() for each in reply.tries],
    }


def schema_from(text: str) -> dict[str, Any]:
    from holdfast.byhand import parse

    found = parse(text.encode(), "--schema")
    if not isinstance(found, dict):
        raise UsageError("a JSON Schema is an object", hint='such as {"type": "object"}')
    check_schema(found)
    return found


def chosen(context: Context, home: Home, agent: str, named: str | None) -> Model:
    """The model that was asked for, else the one that the environment or the settings name.

    Settings may have come with a repository: they do not get to run commands, nor to choose the
    address to which everything that an agent knows is sent.
    """
    ref = named or unsaid(home, agent)
    if not ref:
        raise UsageError(
            "which model?",
            hint=f"--model scripted:echo, {VARIABLE}, or default = … under [models] in "
            "holdfast.toml; `holdfast model list` shows providers",
        )
    if not named and not os.environ.get(VARIABLE) and _reaches_out(ref):
        raise ConfigError(
            f"holdfast.toml names a command or an address as a model: {ref[:_SHOWN]!r}",
            hint="say it yourself with --model if you want to use it",
        )
    reads_file = ref.startswith("scripted:") and ref != "scripted:echo"
    if named and context.from_afar and (_reaches_out(ref) or reads_file):
        raise UsageError(
            "from afar no model can be named that runs a command, reads a file or has an address",
            hint=f"name it in a terminal: `agent chat --model`, or {VARIABLE} before `holdfast up`",
        )
    settings, clock = home.settings, context.clock
    for other in settings.fallback_models:
        if _reaches_out(other):
            raise ConfigError(
                f"holdfast.toml names a command or an address as a fallback: {other[:_SHOWN]!r}",
                hint="models.fallback takes models of providers; `holdfast model list` shows them",
            )
    models: list[Model] = []
    for name in (ref, *settings.fallback_models):
        model = open_model(name)
        if (most := settings.calls_per_minute) is not None:
            model = Limited(model, clock, most)
        models.append(Retrying(model, clock, SystemRandom()))
    return Fallback(models, clock) if len(models) > 1 else models[0]


def unsaid(home: Home, agent: str) -> str | None:
    """The model that the environment, the settings or its persona name for an agent."""
    if ref := os.environ.get(VARIABLE):
        return ref
    said = home.settings
    return said.model(agent) or _of_persona(home, agent) or said.default_model


def _of_persona(home: Home, agent: str) -> str | None:
    """What `runtime.model` of the manifest names, if that is a model of a provider we know.

    Personas of other systems have names there that only those understand, and those that come from
    elsewhere get neither to run commands nor to choose an address.
    """
    match object_at(home, HOLDFAST.manifest(agent)):
        case {"runtime": {"model": str(ref)}} if ":" in ref:
            known = ref.partition(":")[0] in providers()
            return ref if known and not _reaches_out(ref) else None
        case _:
            return None


def _reaches_out(ref: str) -> bool:
    return ref.partition(":")[0] in _RUNS_COMMANDS or "@" in ref
