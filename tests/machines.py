"""Another machine for tests: its own host name, boot, time since boot and pid namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_BOOT = "/proc/sys/kernel/random/boot_id"
_START = f'mount --bind "$1" {_BOOT} && hostname "$2" && shift 2 && exec "$@"'
_UNSHARED = (
    *("unshare", "--mount", "--uts", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"),
    *("--time", "--boottime", "5000000"),
)


def _are_to_be_had() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run([*_UNSHARED, "true"], check=False, capture_output=True).returncode == 0


needs_machines = pytest.mark.skipif(not _are_to_be_had(), reason="needs root and namespaces")


def machine(folder: Path, name: str = "far", boot: int = 1) -> list[str]:
    """The command that runs another one on a machine of that name, in its so manieth boot."""
    file = folder / f"{name}-{boot}"
    file.write_text(f"{boot:08d}-0000-0000-0000-{name:0>12}\n")
    return [*_UNSHARED, "sh", "-c", _START, "sh", str(file), name]
