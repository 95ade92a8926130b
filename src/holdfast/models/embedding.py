"""Embeddings of a server that speaks OpenAI's protocol: a provider's, Ollama's or any other."""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.errors import ConfigError, InvalidOutput, NotAuthorised, Unavailable

if TYPE_CHECKING:
    from holdfast.models.places import Place

_AT_ONCE, _TIMEOUT, _LARGEST = 32, 60.0, 256 << 20
_OPENAI = "https://api.openai.com/v1"


def served(ref: str) -> Served | None:
    """`PROVIDER:NAME` or `PROVIDER:NAME@URL`; None if it names no server."""
    kind, _, name = ref.partition(":")
    if not name or kind == "hash":
        return None
    try:
        from holdfast.models.places import SERVICES, place_of  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError(
            f"the embedder {ref[:80]!r} needs the extra llm", hint='`pip install "holdfast[llm]"`'
        ) from None
    service = SERVICES.get(kind)
    return Served(place_of(service, name, os.environ)) if service else None


class Served:
    weight = 0.5

    def __init__(self, place: Place) -> None:
        self.name, self._place = f"{place.service.name}:{place.model}", place
        self._url = place.url or _OPENAI

    def embed(self, texts: Sequence[str], /) -> list[array[float]]:
        """Of each text 32-bit floats, of length 1."""
        found: list[array[float]] = []
        for start in range(0, len(texts), _AT_ONCE):
            # An empty text is refused by some servers.
            some = [text or " " for text in texts[start : start + _AT_ONCE]]
            answer = self._post({"model": self._place.model, "input": some})
            try:
                rows: list[Any] = sorted(answer["data"], key=lambda row: row["index"])
                vectors = [[float(each) for each in row["embedding"]] for row in rows]
            except (KeyError, TypeError, ValueError, OverflowError):
                vectors = []
            if len(vectors) != len(some) or len({len(each) for each in vectors}) != 1:
                raise InvalidOutput(
                    f"{self.name} returned no embeddings for {len(some)} texts",
                    hint="check that the model is one for embeddings",
                )
            for vector in vectors:
                length = math.hypot(*vector) or 1.0
                found.append(array("f", [each / length for each in vector]))
        return found

    def _post(self, body: dict[str, Any]) -> Any:
        to, key = urlsplit(self._url), self._place.key
        connect = HTTPSConnection if to.scheme == "https" else HTTPConnection
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        # No redirect is followed: the key is for this address only.
        connection = connect(to.hostname or "", to.port, timeout=_TIMEOUT)
        try:
            path = f"{to.path.rstrip('/')}/embeddings"
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read(_LARGEST)
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"cannot reach {self.name} at {self._url}: {error}",
                hint='start the server, or set `embedder = "hash"` under [memory]',
            ) from None
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise NotAuthorised(f"{self.name} refused its key", hint="check the key")
        if answer.status != 200:
            raise Unavailable(
                f"{self.name} answered {answer.status}: {data[:200].decode('utf-8', 'replace')}",
                hint="check the name of the model",
            )
        try:
            return json.loads(data)
        except ValueError:
            return None
