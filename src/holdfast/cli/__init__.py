"""The command line: renders operations, holds no logic."""
