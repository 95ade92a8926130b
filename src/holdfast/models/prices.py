"""What tokens cost, from the public price lists in `genai-prices`; unknown is said, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.models.protocol import Request, Usage

if TYPE_CHECKING:
    from decimal import Decimal

_BYTES_PER_TOKEN = 2
"""A token has at least so many bytes in almost any text: for the most that a question can cost."""
_OVERHEAD = 64
"""Tokens that a provider adds to each message at most."""


def cost_usd(provider: str, model: str, usage: Usage) -> float | None:
    """None where the model or the tokens are not known."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    price = _price(provider, model, usage)
    return None if price is None else float(price)


def most_usd(provider: str, model: str, request: Request) -> float | None:
    """What a question can cost at most; None where the price or a limit of tokens is missing."""
    if request.max_tokens is None:
        return None
    size = len(request.text.encode("utf-8", "surrogatepass"))
    tokens = size // _BYTES_PER_TOKEN + _OVERHEAD * len(request.messages)
    return cost_usd(provider, model, Usage(tokens, request.max_tokens))


def _price(provider: str, model: str, usage: Usage) -> Decimal | None:
    from genai_prices import Usage as Tokens  # noqa: PLC0415 - a third of a second
    from genai_prices import calc_price  # noqa: PLC0415

    tokens = Tokens(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
    )
    try:
        return calc_price(tokens, model, provider_id=provider).total_price
    except LookupError:
        return None
