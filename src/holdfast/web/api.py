"""Every verb that may be called over HTTP, as a route with a schema of its own.

`GET /api/NOUN/VERB` for what only looks, `POST` with a JSON object for the rest.  The answer is
the envelope that `--json` prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

from holdfast.clock import utc_stamp
from holdfast.codec import encode
from holdfast.errors import HoldfastError, UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Stream, error_envelope
from holdfast.ops.operation import Operation, Table
from holdfast.ops.parameter import Parameter, parameters

Opener = Callable[[], Context]
STATUS = {1: 409, 2: 400, 3: 409, 4: 404, 5: 423, 6: 500}
"""By the exit code that the command line would have."""
_LONGEST = 1 << 20
"""Characters of one argument."""


class Failure(BaseModel):
    """What went wrong and what to do next."""

    error: dict[str, Any]


class Envelope(BaseModel):
    """A list, a thing or a change: see docs/cli.md."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)
    schema_: int = Field(alias="schema")


def routes(table: Table, opened: Opener) -> APIRouter:
    router = APIRouter(prefix="/api")
    for operation in table.seen_by("http").operations:
        reads = operation.effect == "read"
        router.add_api_route(
            f"/{operation.name.replace(' ', '/')}",
            _endpoint(operation, opened, reads=reads),
            methods=["GET" if reads else "POST"],
            summary=operation.summary,
            tags=[operation.noun or "home"],
            operation_id=operation.name.replace(" ", "_").replace("-", "_"),
            response_model=None,
            responses={
                200: {"model": Envelope},
                **{code: {"model": Failure} for code in (400, 404, 409, 422, 423)},
            },
        )
    return router


def call(operation: Operation, opened: Opener, arguments: dict[str, Any]) -> dict[str, Any]:
    """The envelope of one call, with what it warned of."""
    with opened() as context:
        as_of = utc_stamp(context.clock.now())
        result = operation.call(context, arguments)
        if isinstance(result, Stream):
            raise UsageError(f"{operation.name} has no end", hint="follow /events instead")
        told = result.as_dict(as_of)
        if warnings := context.take_warnings():
            told["warnings"] = warnings
        return told


def _endpoint(operation: Operation, opened: Opener, *, reads: bool) -> Callable[..., Response]:
    declared = parameters(operation.load())

    def answer(arguments: dict[str, Any]) -> Response:
        return Response(encode(call(operation, opened, arguments)), media_type="application/json")

    if reads:

        def get(**given: Any) -> Response:
            return answer({name: value for name, value in given.items() if value is not None})

        # FastAPI reads what a route takes off its signature.
        get.__signature__ = inspect.Signature([_query(each) for each in declared])
        return get

    fields: dict[str, Any] = {each.name: _field(each) for each in declared}
    name = "".join(part.capitalize() for part in operation.name.replace("-", " ").split())
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)

    def post(body: BaseModel) -> Response:
        given = body.model_dump(exclude_unset=True)
        return answer({each.keyword: given[each.name] for each in declared if each.name in given})

    body = inspect.Parameter("body", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=model)
    post.__signature__ = inspect.Signature([body])
    return post


def _type(each: Parameter) -> Any:
    kind: Any = each.type
    if each.choices:
        kind = Literal[each.choices]
    elif kind is str:
        kind = Annotated[str, Field(max_length=_LONGEST)]
    elif kind is float:
        kind = Annotated[float, Field(allow_inf_nan=False)]
    elif kind is int:
        kind = Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]
    return list[kind] if each.repeated else kind


def _query(each: Parameter) -> inspect.Parameter:
    kind = _type(each)
    asked = Query(alias=each.name, description=each.help)
    annotation = Annotated[kind if each.required else kind | None, asked]
    return inspect.Parameter(
        each.keyword,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if each.required else None,
        annotation=annotation,
    )


def _field(each: Parameter) -> tuple[Any, Any]:
    kind = _type(each)
    if each.required:
        return kind, Field(description=each.help)
    kind = kind if each.kind == "flag" else kind | None
    return kind, Field(default=each.default, description=each.help)


# --- failures -------------------------------------------------------------------------------


def failed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HoldfastError)
    status = STATUS.get(error.exit_code, 409)
    return JSONResponse(error_envelope(error), status)


def refused(request: Request, error: Exception) -> JSONResponse:
    """An argument that no verb would take, said as our own errors are."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    told = UsageError(f"{where}: {first['msg']}", hint="see /api for what each verb takes")
    return JSONResponse(error_envelope(told), 422)
