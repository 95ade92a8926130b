"""An agent, as its users meet it."""

from tests.agents.conftest import shell

__all__ = ["shell"]
