"""Every verb that may be called over HTTP, as a route with a schema of its own.

`GET /api/NOUN/VERB` for what only looks, `POST` with a JSON object for the rest.  The answer is
the envelope that `--json` prints.  Whoever accepts `application/x-ndjson` from a `POST` gets the
text of a long answer in lines as it comes, and then the envelope as the last line.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Union, get_args, get_type_hints

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from holdfast.codec import DecodeError, decode_record, encode
from holdfast.errors import HoldfastError, UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show, error_envelope
from holdfast.ops.operation import Operation, Table
from holdfast.ops.parameter import Parameter
from holdfast.web.calls import LINES, Calls, LookingRouter, Tell
from holdfast.web.guard import TOKEN

Opener = Callable[[], Context]
STATUS = {1: 409, 2: 400, 3: 409, 4: 404, 5: 423, 6: 409}
"""By the exit code that the command line would have.  None of them is a 5xx: that would be a fault
of this program, and damage that it found and told of is none."""
_REFUSED = (400, 401, 403, 404, 409, 421, 422, 423)
_NOT_DONE = (*_REFUSED, 413, 415)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


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
            openapi_extra=_query_described(operation) if reads else _body_described(operation),
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


def _query_described(operation: Operation) -> dict[str, Any]:
    described: list[dict[str, Any]] = []
    for each in operation.remote():
        # A query has no null: what is left out is not there.
        schema = each._replace(default=()).schema() if each.may_be_null else each.schema()
        described.append(
            {"name": each.name, "in": "query", "required": each.required, "schema": schema}
        )
    return {"parameters": described, "security": [{"token": []}, {"cookie": []}]}


def _body_described(operation: Operation) -> dict[str, Any]:
    content = {"application/json": {"schema": operation.schema()}}
    return {"requestBody": {"required": True, "content": content}, "security": [{"token": []}]}


def _looking(operation: Operation, opened: Opener) -> Callable[..., Response]:
    declared = operation.remote()

    def get(request: Request) -> Response:
        query = request.query_params
        given = {each.name: _read(each, query) for each in declared if each.name in query}
        try:
            arguments = operation.accepted(given)
        except UsageError as error:
            return JSONResponse(error_envelope(error), 422)
        with opened() as context:
            return _sent(operation.answer(context, arguments))

    return get


def _doing(
    operation: Operation, opened: Opener, calls: Calls
) -> Callable[..., Awaitable[Response]]:
    async def post(request: Request) -> Response:
        try:
            arguments = operation.accepted(decode_record(await request.body()))
        except DecodeError as error:
            told = UsageError(f"the body is {error}", hint="send a JSON object")
            return JSONResponse(error_envelope(told), 422)
        except UsageError as error:
            return JSONResponse(error_envelope(error), 422)

        def work(tell: Tell | None) -> dict[str, Any]:
            with opened() as context:
                return operation.answer(context, arguments, tell)

        if LINES in request.headers.get("accept", ""):
            return StreamingResponse(calls.lines(work), media_type=LINES)
        return _sent(await calls.answer(work))

    return post


def _sent(envelope: dict[str, Any]) -> Response:
    return Response(encode(envelope), media_type="application/json")


def _read(parameter: Parameter, query: QueryParams) -> Any:
    """The JSON that the text of a query stands for; the text itself if it stands for none."""
    if parameter.repeated:
        return query.getlist(parameter.name)
    text = query[parameter.name]
    if parameter.type is bool:
        return _BOOLEANS.get(text.lower(), text)
    if parameter.type is int and re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return int(text)
    if parameter.type is float and re.fullmatch(
        r"[+-]?[0-9.]{1,20}(e[+-]?[0-9]{1,3})?", text, re.I
    ):
        return float(text)
    return text


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
