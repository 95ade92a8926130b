"""Another machine for tests: its own host name, boot, time since boot and pid namespace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_BOOT = "/proc/sys/kernel/random/boot_id"
_START = f'mount --bind "$1" {_BOOT} && hostname "$2" && shift 2 && exec "$@"'

needs_machines = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and namespaces"
)


def machine(folder: Path, name: str = "far", boot: int = 1) -> list[str]:
    """The command that runs another one on a machine of that name, in its so manieth boot."""
    file = folder / f"{name}-{boot}"
    file.write_text(f"{boot:08d}-0000-0000-0000-{name:0>12}\n")
    spaces = ("--mount", "--uts", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child")
    time = ("--time", "--boottime", "5000000")
    return ["unshare", *spaces, *time, "sh", "-c", _START, "sh", str(file), name]
