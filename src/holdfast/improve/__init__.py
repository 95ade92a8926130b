"""The improvement loop: candidates are planned, made, measured by the engine, and merged."""
