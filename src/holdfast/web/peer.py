"""Which process is at the other end of a connection: programs that Holdfast runs change nothing.

The token alone does not tell a person from a worker that has read it.  The kernel does: it names
the processes that hold the other end, and those in a tree of Holdfast are programs.  It does not
show a peer on another machine, in another namespace or of another user: there the token decides.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from holdfast.proc import procfs
from holdfast.proc.membership import all_members

Address = tuple[str, int]
PROGRAM = "programs that Holdfast runs change nothing here"
GONE = "the process that asked has closed the connection"
UNKNOWN = "the process that asked cannot be found, and programs of Holdfast are running"
_LOOKS = 5
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The kernel's number of the pid namespace that contains all others."""


def objection(client: Address, server: Address) -> str | None:
    """Why the process at this end may change nothing; None if it may."""
    found = socket_of(client, server)
    if found is None:
        return GONE if _is_here(client[0]) else None
    inode, uid = found
    if inode == 0:
        return GONE
    for _ in range(_LOOKS):
        world = procfs.everything()
        members = all_members(world)
        holds = {pid: _holds(pid, inode) for pid in world}
        if any(holds[pid] for pid in members):
            return PROGRAM
        if not members or any(holds.values()):
            return None
        if all_members(procfs.everything()) <= members:
            if any(holds[pid] is None for pid in members):
                return UNKNOWN
            hidden = (pid for pid in world if holds[pid] is None and _uid(pid) == uid)
            # In the first namespace process 1 is the system's own, and nobody's browser.
            return UNKNOWN if _sees_all() and all(pid == 1 for pid in hidden) else None
        # A member that was born meanwhile may have been given the connection.
    return UNKNOWN


def socket_of(local: Address, remote: Address) -> tuple[int, int] | None:
    """Inode and user of a TCP socket of this machine; inode 0 if it was closed."""
    wanted = _packed(*local), _packed(*remote)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in procfs.read(table).decode().splitlines()[1:]:
                fields = line.split()
                if (_listed(fields[1]), _listed(fields[2])) == wanted:
                    return int(fields[9]), int(fields[7])
    return None


def _packed(host: str, port: int) -> tuple[bytes, int]:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host.encode(), port  # a name, which no table of the kernel has
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed, port


def _listed(field: str) -> tuple[bytes, int]:
    """An address as the kernel lists it: words of 32 bits in the order of this machine."""
    words, _, port = field.partition(":")
    turned = [bytes.fromhex(words[at : at + 8]) for at in range(0, len(words), 8)]
    if sys.byteorder == "little":
        turned = [word[::-1] for word in turned]
    return _packed(str(ip_address(b"".join(turned))), int(port, 16))


def _is_here(host: str) -> bool:
    """Whether an address is one of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _holds(pid: int, inode: int) -> bool | None:
    """Whether some thread of a process has the socket open; None if that cannot be seen."""
    name, unseen = f"socket:[{inode}]", False
    # A thread can have a table of its own.
    for task in _tasks(pid):
        try:
            with os.scandir(f"/proc/{pid}/task/{task}/fd") as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        if os.readlink(entry.path) == name:
                            return True
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            unseen = True
    return None if unseen else False


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _uid(pid: int) -> int | None:
    """The user of a process, also of one whose files in /proc belong to root."""
    with suppress(OSError, StopIteration):
        lines = procfs.read(f"/proc/{pid}/status").splitlines()
        return int(next(line for line in lines if line.startswith(b"Uid:")).split()[1])
    return None


def _sees_all() -> bool:
    with suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_NAMESPACE
    return False
