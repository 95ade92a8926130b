"""Agents that think together, tick by tick, and the study of their runs."""
