"""Fault injection: evidence that acknowledged means durable.  See README.md."""
