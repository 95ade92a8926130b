"""`fmm.json`: topics in topics, and what was noted under each.

Every key is a topic but `__data__`, which holds the notes of its topic.  Under
`retrieval/ivf` stands what is known about the index of vectors, in one of two forms: a topic
for each size of index (`dim768`, in it `K64`), or the fields of the one index there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from holdfast.contracts.kind import Kind
from holdfast.contracts.record import (
    AtLeastOne,
    Count,
    EpochTime,
    Free,
    Number,
    Record,
    broken_rule,
)

_DIM = re.compile(r"dim([1-9][0-9]{0,8})")
_K = re.compile(r"K([1-9][0-9]{0,8})")
_IVF = "retrieval/ivf"
_Json = dict[str, Any]

Centroids = str | list[list[Number]] | list[Number]


class Datum(Record):
    """A note.  Tools add fields of their own."""

    ts: EpochTime
    text: str | None = None
    topic: str | None = None
    meta: Annotated[dict[str, Any], Free("an object, and no more is said about it")] | None = None
    often_missing = frozenset({"ts"})
    open_ended = True


class _NoNotes(list[Datum]):
    """Told from an empty list, which is written."""


class _Topics(Record):
    """A record whose other fields are records too."""

    data: list[Datum] = Field(default_factory=_NoNotes, alias="__data__")
    open_ended = True

    @model_serializer(mode="wrap")
    def _as_given(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A topic that is called `data` makes the field of this name look as if it were set.
        found: dict[str, Any] = written(self)
        if isinstance(self.data, _NoNotes):
            found.pop("__data__", None)
        return found

    def all_records(self, path: str = "") -> Iterator[tuple[str, Record]]:
        yield from super().all_records(path)
        for name, inner in (self.model_extra or {}).items():
            yield from inner.all_records(f"{path}.{name}")


class Topic(_Topics):
    """A topic with its notes, and the topics in it."""

    if not TYPE_CHECKING:  # a checker takes it for an argument
        __pydantic_extra__: dict[str, Topic]

    @property
    def topics(self) -> dict[str, Topic]:
        return self.model_extra or {}


class IvfIndex(Record):
    """What is known about an index of vectors.  Tools add fields of their own."""

    dim: AtLeastOne | None = None
    K: AtLeastOne | None = None
    nprobe: AtLeastOne | None = None
    count: Count | None = None
    centroids: Centroids
    buckets: dict[str, list[int]] | None = None
    ts: EpochTime | None = None
    open_ended = True


class IvfSizes(_Topics):
    """The indexes of one dimension, each under `K` and its number of centroids."""

    if not TYPE_CHECKING:
        __pydantic_extra__: dict[str, IvfIndex]

    @property
    def indexes(self) -> dict[str, IvfIndex]:
        return self.model_extra or {}

    def own_unknown_fields(self) -> Iterator[str]:
        return (name for name in self.indexes if not _K.fullmatch(name))

    @model_validator(mode="after")
    def _as_their_names_say(self) -> Self:
        for name, index in self.indexes.items():
            if _differs(_K, name, index.K):
                raise broken_rule(f"{name} is not the name of an index with K {index.K}")
        return self


class Ivf(_Topics):
    """The indexes of all dimensions, or the fields of the only one."""

    if not TYPE_CHECKING:
        __pydantic_extra__: dict[str, IvfSizes]
    dim: AtLeastOne | None = None
    K: AtLeastOne | None = None
    nprobe: AtLeastOne | None = None
    count: Count | None = None
    centroids: Centroids | None = None

    @property
    def dimensions(self) -> dict[str, IvfSizes]:
        return self.model_extra or {}

    def own_unknown_fields(self) -> Iterator[str]:
        return (name for name in self.dimensions if not _DIM.fullmatch(name))

    @model_validator(mode="after")
    def _whole_or_named(self) -> Self:
        given = {"dim", "K", "nprobe", "count", "centroids"} & self.model_fields_set
        if given and len(given) < 5:
            raise broken_rule("an index has dim, K, nprobe, count and centroids, or none of them")
        for name, sizes in self.dimensions.items():
            for index in sizes.indexes.values():
                if _differs(_DIM, name, index.dim):
                    raise broken_rule(f"{name} is not the name of indexes with dim {index.dim}")
        return self


def _differs(named: re.Pattern[str], name: str, given: int | None) -> bool:
    found = named.fullmatch(name)
    return found is not None and given is not None and int(found[1]) != given


class Retrieval(Topic):
    ivf: Ivf = Field(default_factory=Ivf)


class FractalMemory(Topic):
    """The topmost topics."""

    retrieval: Retrieval = Field(default_factory=Retrieval)


def node(tree: _Json, topic: str) -> _Json:
    """The node of a topic in a tree, made where it is absent."""
    at = tree
    for name in topic.split("/") if topic != "/" else ():
        at = at.setdefault(name, {})
    return at


def data_in(tree: object) -> Iterator[tuple[str, _Json]]:
    """Every datum of an `fmm.json`, Holdfast's or another system's, with its topic.

    What is no object is passed over, and so is the index of vectors.  A name of another system may
    have a `/` in it, which is shown as `-`.
    """
    waiting: list[tuple[str, Any]] = [("/", tree)]
    while waiting:
        topic, found = waiting.pop()
        if not isinstance(found, dict) or topic == _IVF:
            continue
        here = cast("_Json", found)
        data = here.get("__data__")
        for datum in cast("list[Any]", data) if isinstance(data, list) else ():
            if isinstance(datum, dict):
                yield topic, cast("_Json", datum)
        above = "" if topic == "/" else f"{topic}/"
        below = [name for name in reversed(here) if name != "__data__"]
        waiting += [(above + name.replace("/", "-"), here[name]) for name in below]


def _looks(value: Any) -> bool:
    """Whether there are notes somewhere, and nothing but objects on the way to them."""
    waiting, noted = [value], False
    while waiting:
        topic = waiting.pop()
        if not isinstance(topic, dict):
            return False
        for name, inner in cast("dict[str, Any]", topic).items():
            if name == "__data__":
                noted = True
            elif name != "retrieval":
                waiting.append(inner)
    return noted


FMM = Kind.of("fmm", "What an agent knows, in topics", FractalMemory, r"fmm\.json", _looks)
