"""An agent, as its users meet it."""

from tests.agents.conftest import settled, shell

__all__ = ["settled", "shell"]
