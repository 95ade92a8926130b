"""A program in a folder: what it gets of ours."""

from __future__ import annotations

import os
import re

_SECRET = re.compile(r"HOLDFAST_.*(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)")


def our_environment() -> dict[str, str]:
    """Ours, without what only we need to know."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}
