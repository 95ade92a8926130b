"""Holdfast: durable state for fleets of LLM agents, in files you can read.

Importing this package does nothing: no files, no threads, no environment.
"""

__version__ = "0.1.0"
