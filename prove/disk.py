"""A file system of our own on a loop device, whose power can be cut.

The cut is the ioctl FS_IOC_SHUTDOWN without a flush of the journal: from that instant nothing
reaches the device, as when the power goes; mounting again replays the journal.  Runs in a
mount namespace of its own (`unshare -m`), so that mounts and loop devices go with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_MAKE = {
    "ext4": ("32M", ["mkfs.ext4", "-q", "-F"]),
    "xfs": ("300M", ["mkfs.xfs", "-q", "-f"]),
}
TOOLS = ("mkfs.ext4", "mkfs.xfs", "mount", "umount", "unshare", "losetup")


class Disk:
    """One image, made once (or taken from `made`) and put back as it was as often as needed."""

    def __init__(self, kind: str, place: Path, made: Path | None = None) -> None:
        self.kind, self._place = kind, place
        self._image, self._pristine = place / f"{kind}.img", place / f"{kind}.new"
        self._renewed = 0
        self.path = place / "mnt"
        self.mounted = False
        self.path.mkdir()
        if made is not None:
            _run("cp", "--sparse=always", str(made), str(self._pristine))
            return
        size, command = _MAKE[kind]
        _run("truncate", "-s", size, str(self._pristine))
        _run(*command, str(self._pristine))

    def renew(self, writes: Iterable[tuple[int, bytes]] = ()) -> None:
        """Mount an empty file system, or what it became by `writes` to the device."""
        self.umount()
        # Never the same file twice: `mount` takes a loop device that the kernel has not let go of
        # yet, and with it what that remembers of the image before.
        self._image.unlink(missing_ok=True)
        self._renewed += 1
        self._image = self._place / f"{self.kind}.{self._renewed}.img"
        self.copy_to(self._image)
        with open(self._image, "r+b") as image:
            for offset, data in writes:
                image.seek(offset)
                image.write(data)
        self.mount()

    def copy_to(self, path: Path) -> None:
        """The device as it was made, as another file."""
        _run("cp", "--sparse=always", str(self._pristine), str(path))

    def mount(self, image: Path | None = None) -> None:
        _run("mount", "-t", self.kind, "-o", "loop", str(image or self._image), str(self.path))
        self.mounted = True

    def cut(self) -> None:
        """Cut the power; OSError if that did not work."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def is_cut(self) -> bool:
        """Whether nothing can be written any more."""
        try:
            os.mkdir(self.path / "probe")
        except OSError as error:
            return error.errno in (errno.EIO, errno.EROFS, errno.ESHUTDOWN)
        return False

    def umount(self) -> None:
        if self.mounted:
            self.mounted = False
            umount(self.path)

    def close(self) -> None:
        try:
            self.umount()
        finally:
            shutil.rmtree(self._place, ignore_errors=True)


def umount(path: Path) -> None:
    """Unmount; the processes that used it are dead, but the kernel may need a moment."""
    for _ in range(200):
        done = subprocess.run(["umount", str(path)], capture_output=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.01)
    _run("umount", "-l", str(path))
    raise OSError(errno.EBUSY, "somebody kept the file system busy", str(path))


def leftovers(place: Path) -> list[str]:
    """Loop devices that still stand on images below `place`."""
    said = subprocess.run(
        ["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True, check=False
    )
    return [row.split()[0] for row in said.stdout.splitlines() if str(place) in row]


def cannot_mount() -> str | None:
    """Why this machine cannot do it, or None."""
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "needs mount namespaces"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(errno.EIO, f"{' '.join(command)}: {done.stderr.strip()}")
