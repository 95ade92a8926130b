"""Agents: who they are, what they do, and what they know."""
