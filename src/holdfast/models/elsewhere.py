"""OpenAI's client for servers that are not OpenAI's."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI


class Elsewhere(AsyncOpenAI):
    """Sends nothing of what the variables of OpenAI hold but the key it was given.

    The library takes organisation, project and headers from the environment wherever the server
    is, and again in each copy that it makes of a client.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.organization = self.project = self.admin_api_key = self.webhook_secret = None
        self._custom_headers = {}
