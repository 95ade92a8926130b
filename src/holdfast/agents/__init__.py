"""Agents: their sessions and what is known of them, one directory each."""
