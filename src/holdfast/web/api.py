"""Every verb that may be called over HTTP, as a route with a schema of its own.

`GET /api/NOUN/VERB` for what only looks, `POST` with a JSON object for the rest.  The answer is
the envelope that `--json` prints.  Whoever accepts `application/x-ndjson` from a `POST` gets the
text of a long answer in lines as it comes, and then the envelope as the last line.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_type_hints

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response, StreamingResponse

from holdfast.clock import utc_stamp
from holdfast.codec import encode
from holdfast.errors import HoldfastError, UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show, Stream, error_envelope
from holdfast.ops.operation import Operation, Table
from holdfast.ops.parameter import Parameter, parameters
from holdfast.web.calls import LINES, Calls, LookingRouter, Tell
from holdfast.web.guard import TOKEN

Opener = Callable[[], Context]
STATUS = {1: 409, 2: 400, 3: 409, 4: 404, 5: 423, 6: 409}
"""By the exit code that the command line would have.  None of them is a 5xx: that would be a fault
of this program, and damage that it found and told of is none."""
_REFUSED = (400, 401, 403, 404, 409, 421, 422, 423)
_NOT_DONE = (*_REFUSED, 413, 415)
_LONGEST = 1 << 20
"""Characters of one argument."""


class Reason(BaseModel):
    code: str
    message: str
    hint: str | None
    retryable: bool
    path: str | None


class Failure(BaseModel):
    """What went wrong and what to do next."""

    model_config = ConfigDict(extra="forbid")
    error: Reason


class _Envelope(BaseModel):
    model_config = ConfigDict(extra="forbid")
    schema_: Literal[1] = Field(alias="schema")
    warnings: list[str] = Field(default=[], description="What people should know of")


class Listed(_Envelope):
    """A list."""

    as_of: str
    counts: dict[str, Any]
    rows: list[dict[str, Any]]
    truncated: bool
    next: str | None


class Shown(_Envelope):
    """One thing."""

    as_of: str
    data: dict[str, Any]


class Changed(_Envelope):
    """Something was done, or was already so."""

    target: str
    applied: bool
    dry_run: bool
    detail: str
    data: dict[str, Any]


_ENVELOPES: dict[Any, Any] = {Rows: Listed, Show: Shown, Change: Changed}


def routes(table: Table, opened: Opener, calls: Calls) -> APIRouter:
    router = LookingRouter(calls, prefix="/api")
    for operation in table.seen_by("http").operations:
        reads = operation.effect == "read"
        router.add_api_route(
            f"/{operation.name.replace(' ', '/')}",
            _looking(operation, opened) if reads else _doing(operation, opened, calls),
            methods=["GET" if reads else "POST"],
            summary=operation.summary,
            tags=[operation.noun or "home"],
            operation_id=operation.name.replace(" ", "_").replace("-", "_"),
            response_model=None,
            responses={
                200: {"model": _answer_of(operation)},
                **{code: {"model": Failure} for code in (_REFUSED if reads else _NOT_DONE)},
            },
            openapi_extra={
                "security": [{"token": []}, {"cookie": []}] if reads else [{"token": []}]
            },
        )
    return router


def described(app: FastAPI, cookie: str) -> Callable[[], dict[str, Any]]:
    """The OpenAPI description, with what a caller has to bring."""
    made = app.openapi

    def description() -> dict[str, Any]:
        told = made()
        told["components"]["securitySchemes"] = {
            "token": {"type": "apiKey", "in": "header", "name": TOKEN},
            "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
        }
        return told

    return description


def _answer_of(operation: Operation) -> Any:
    """The model of what a verb gives back, which its signature says."""
    given = get_type_hints(operation.load())["return"]
    return Union[tuple(_ENVELOPES[each] for each in get_args(given) or (given,))]  # noqa: UP007


def call(
    operation: Operation,
    opened: Opener,
    arguments: dict[str, Any],
    tell: Tell | None = None,
) -> dict[str, Any]:
    """The envelope of one call, with what it warned of."""
    with opened() as context:
        context.tell = tell
        as_of = utc_stamp(context.clock.now())
        result = operation.call(context, arguments)
        if isinstance(result, Stream):
            raise UsageError(f"{operation.name} has no end", hint="follow /events instead")
        told = result.as_dict(as_of)
        if warnings := context.take_warnings():
            told["warnings"] = warnings
        return told


def _declared(operation: Operation) -> list[Parameter]:
    return [each for each in parameters(operation.load()) if not each.is_path]


def _answer(envelope: dict[str, Any]) -> Response:
    return Response(encode(envelope), media_type="application/json")


def _looking(operation: Operation, opened: Opener) -> Callable[..., Response]:
    def get(**given: Any) -> Response:
        return _answer(call(operation, opened, given))

    # FastAPI reads what a route takes off its signature.
    get.__signature__ = inspect.Signature([_query(each) for each in _declared(operation)])
    return get


def _doing(
    operation: Operation, opened: Opener, calls: Calls
) -> Callable[..., Awaitable[Response]]:
    declared = _declared(operation)
    # Under names of their own: an argument may be called as something that every model has.
    fields: dict[str, Any] = {f"{each.name}_": _field(each) for each in declared}
    name = "".join(part.capitalize() for part in operation.name.replace("-", " ").split())
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)

    async def post(request: Request, body: BaseModel) -> Response:
        given = body.model_dump(exclude_unset=True, by_alias=True)
        said = {each.keyword: given[each.name] for each in declared if each.name in given}
        work = partial(call, operation, opened, said)
        if LINES in request.headers.get("accept", ""):
            return StreamingResponse(calls.lines(work), media_type=LINES)
        return _answer(await calls.answer(work))

    kinds = {"request": Request, "body": model}
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    post.__signature__ = inspect.Signature(
        [inspect.Parameter(name, place, annotation=kind) for name, kind in kinds.items()]
    )
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
    asked = Query(alias=each.name, description=each.help)
    return inspect.Parameter(
        each.keyword,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if each.required else each.default,
        annotation=Annotated[_optional(each), asked],
    )


def _field(each: Parameter) -> tuple[Any, Any]:
    default = ... if each.required else each.default
    return _optional(each), Field(default=default, alias=each.name, description=each.help)


def _optional(each: Parameter) -> Any:
    """Null only where it says something: that the argument was left out."""
    kind = _type(each)
    return kind if each.required or each.default is not None else kind | None


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
