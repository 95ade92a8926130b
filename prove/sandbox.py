"""sandbox: what a hostile worker tries from inside, as root and as an ordinary user.

A case is one attempt in a sandbox of its own, in a tree as a job runs it, with the rest by chance.
It fires if the probe says that it tried, and fails if it gained something.
The control makes the same attempts in a sandbox without the covers (bubblewrap that shares all and
binds all writable), or without any where bubblewrap by itself refuses: each has to gain something.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.proc.limits import Limits
from holdfast.proc.tree import Tree
from holdfast.workspace.sandbox import Sandbox
from prove import frame
from prove.frame import Control, Harness, Result

PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or sys.executable
OTHER = 65534
AS_USER = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
LOOSE = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--"]
PLACES = ("/opt", "/srv", "/var/lib", os.path.expanduser("~"))
"""Not below /tmp, which is another one inside."""
SECRET = "hold-this-fast"
PATIENCE = 60.0
_CREATE, _REMOVE = 0o1666, 0
_PATH = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}


class Probe(NamedTuple):
    """One attempt: it sets `got` to what it gained."""

    code: str
    by: str = "root user"
    """As whom it gains something where nothing is covered."""
    loose: bool = True
    """Whether it does so in a sandbox that covers nothing; else only outside of any."""


# None changes anything of the machine where it succeeds.
PROBES = {
    "kernel-setting": Probe(
        """
with open("/proc/sys/vm/swappiness", "r+") as key:
    same = key.read()
    key.seek(0)
    key.write(same)
got = same""",
        by="root",
    ),
    "core-pattern": Probe("got = writes('/proc/sys/kernel/core_pattern')", by="root"),
    "network-setting": Probe("got = writes('/proc/sys/net/ipv4/ip_forward')", by="root"),
    "proc-files": Probe(
        """
got = [each for each in os.listdir("/proc") if not each.isdigit()
       and os.path.isfile(f"/proc/{each}") and os.access(f"/proc/{each}", os.W_OK)]""",
        by="root",
    ),
    "sys-files": Probe(
        """
got = [f"{top}/{name}" for top, _, names in os.walk("/sys/kernel")
       for name in names if os.access(f"{top}/{name}", os.W_OK)][:3]""",
        by="root",
    ),
    "control-groups": Probe(
        """
mounts = [line.split()[1:3] for line in open("/proc/self/mounts")]
got = [place for place, kind in mounts if kind.startswith("cgroup") and os.access(place, os.W_OK)]
""",
        by="root",
    ),
    "beside": Probe("open(f'{beside}/written', 'w').close(); got = 1"),
    "token": Probe("got = open(f'{beside}/cache/dashboard.json').read()"),
    "key-file": Probe("got = open(f'{beside}/keys.json').read()"),
    "key-folder": Probe("got = os.listdir(f'{beside}/keys')"),
    "uncover": Probe(
        """
call("umount2", f"{beside}/cache".encode(), 2)
got = os.path.exists(f"{beside}/cache/dashboard.json")"""
    ),
    "processes": Probe("got = victim in pids()"),
    "environ": Probe("got = victims()", loose=False),
    "root": Probe(
        "got = [pid for pid in victims() if open(f'/proc/{pid}/root{beside}/seen').read()]",
        loose=False,
    ),
    "memory": Probe("got = [writes(f'/proc/{pid}/mem') for pid in victims()]", by="root"),
    "ptrace": Probe(
        """
for pid in victims() or [victim]:
    if call("ptrace", 16, pid, None, None) == 0:
        os.waitpid(pid, 0x40000000)
        call("ptrace", 17, pid, None, None)
        got = pid""",
        by="root",
    ),
    "signal": Probe("os.kill(victim, 0); got = victim"),
    "mount": Probe(
        """
os.mkdir("m")
got = call("mount", b"none", b"m", b"tmpfs", 0, None) == 0
call("umount2", b"m", 2)
os.rmdir("m")""",
        by="root",
    ),
    "remount": Probe(
        """
call("mount", None, b"/proc", None, 32 | 4096, None)
got = writes("/proc/sys/vm/swappiness")""",
        by="root",
    ),
    "namespace": Probe("got = call('unshare', 0x10000000) == 0", by="root"),
    "namespace-mounts": Probe("got = call('unshare', 0x10020000) == 0", by="root"),
    "device": Probe(
        "os.mknod('disk', 0o60600, os.makedev(1, 0)); os.unlink('disk'); got = 1", by="root"
    ),
    "kernel-log": Probe("got = writes('/dev/kmsg')", by="root"),
    "privileges": Probe("got = 'NoNewPrivs:\\t0' in status()", loose=False),
    "capabilities": Probe(
        "got = [line for line in status().splitlines() if line[:3] == 'Cap' and line[-1] != '0']",
        loose=False,
    ),
    "host-name": Probe("socket.sethostname(socket.gethostname()); got = 1", by="root"),
    "raw-socket": Probe("socket.socket(socket.AF_PACKET, socket.SOCK_RAW); got = 1", by="root"),
    "socket-in-tmp": Probe("socket.socket(socket.AF_UNIX).connect(named); got = named"),
    "shared-memory": Probe("got = open(shared).read()"),
    "system-v": Probe("got = call('shmget', segment, 0, 0) >= 0"),
    "dashboard": Probe(
        """
try:
    got = urllib.request.urlopen(urllib.request.Request(
        f"{url}/api/ledger/write", b'{"agent": "rio", "event": "info", "text": "x"}',
        {"content-type": "application/json", "x-holdfast-token": token}), timeout=30).status == 200
except urllib.error.HTTPError as error:
    tried = error.code"""
    ),
}

PRELUDE = """
import ctypes, json, os, socket, sys, urllib.error, urllib.request
globals().update(json.loads(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
got, tried = None, 0
def call(name, *given):
    return getattr(libc, name)(*given)
def status():
    return open("/proc/self/status").read()
def writes(path):
    os.close(os.open(path, os.O_WRONLY))
    return path
def pids():
    return [int(each) for each in os.listdir("/proc") if each.isdigit()]
def victims():
    found = []
    for pid in pids():
        try:
            found += [pid] * (secret in open(f"/proc/{pid}/environ").read())
        except OSError:
            pass
    return found
try:
"""
TELLS = """
except OSError as error:
    tried = error.errno
print(json.dumps({"got": got, "tried": tried}))
"""

HARNESS = Harness(
    name="sandbox",
    proves="What runs in the sandbox gains nothing outside of its workspace.",
    targets={"quick": 50, "ci": 150, "full": 1_500},
    unit="attempts",
    tools=("bwrap", "setpriv"),
    beyond_store=True,
)


class Scene:
    """A machine with something to gain."""

    def __init__(self, stack: ExitStack) -> None:
        above = next(each for each in PLACES if os.access(each, os.W_OK))
        self.place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=above)))
        self.place.chmod(0o755)
        (self.place / "home").mkdir()
        self.board = stack.enter_context(_dashboard(self.place))
        self.named = stack.enter_context(_listening())
        self.shared = stack.enter_context(_in_memory())
        self.segment = stack.enter_context(_segment())

    def attempt(self, name: str, user: str, rng: Random, *, covered: bool) -> dict[str, Any]:
        """What the probe says of its attempt."""
        probe, foreign = PROBES[name], user == "user" and os.geteuid() == 0
        as_user = AS_USER if foreign else []
        with tempfile.TemporaryDirectory(
            dir=self.place, prefix=rng.choice(["j", "a b", "é"])
        ) as top:
            beside = Path(top)
            workspace = self._filled(beside, OTHER if foreign else os.geteuid())
            if rng.random() < 0.3:
                (beside / "link").symlink_to("workspace")
                workspace = beside / "link"
            victim = subprocess.Popen([*as_user, "sleep", "600"], env={"S": SECRET, **_PATH})
            try:
                given = {
                    **self.board,
                    **{"beside": top, "victim": victim.pid, "secret": SECRET},
                    **{"named": self.named, "shared": self.shared, "segment": self.segment},
                }
                code = (
                    PRELUDE
                    + "".join(f"    {line}\n" for line in probe.code.strip().splitlines())
                    + TELLS
                )
                words = [PYTHON, "-c", code, json.dumps(given)]
                if covered:
                    names = ("cache", "keys", "keys.json", "absent")
                    inside = Sandbox(
                        str(workspace), hidden=tuple(f"{top}/{each}" for each in names)
                    )
                    limits = Limits(time=PATIENCE)
                    ended = Tree([*as_user, *inside.wrap(words)], limits=limits).run()
                    said, went = ended.last_line, ended.code == 0
                else:
                    loose = [*LOOSE[:-1], "--chdir", str(workspace), "--"] if probe.loose else []
                    ran = subprocess.run(
                        [*as_user, *loose, *words],
                        cwd=workspace, capture_output=True, timeout=PATIENCE, check=False,
                    )  # fmt: skip
                    said, went = ran.stdout.decode(), ran.returncode == 0
            finally:
                victim.kill()
                victim.wait()
            written = (beside / "written").exists()
        found: dict[str, Any] = json.loads(said.splitlines()[-1]) if went else {}
        return {**found, "got": "written"} if written else found

    def _filled(self, beside: Path, user: int) -> Path:
        for name in ("cache/dashboard.json", "keys/keys.json", "keys.json", "seen", "workspace/x"):
            (beside / name).parent.mkdir(exist_ok=True)
            (beside / name).write_text(SECRET)
        for each in (beside, *beside.rglob("*")):
            os.chown(each, user, -1)
        return beside / "workspace"


@contextmanager
def _dashboard(place: Path) -> Generator[dict[str, str]]:
    """A dashboard that is up, with its token."""
    words = [sys.executable, "-m", "holdfast", "--home", str(place / "home")]
    surroundings = frame.child_environment()
    subprocess.run([*words, "init", "rio"], env=surroundings, check=True, capture_output=True)
    with subprocess.Popen(
        [*words, "up"], env=surroundings, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as board:
        assert board.stderr is not None
        board.stderr.readline()
        record = json.loads((place / "home/cache/dashboard.json").read_text())
        yield {"url": record["url"], "token": record["token"]}
        board.terminate()


@contextmanager
def _listening() -> Generator[str]:
    """A socket in /tmp to which everybody may connect."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as own:
        os.chmod(folder, 0o755)
        own.bind(f"{folder}/socket")
        os.chmod(f"{folder}/socket", 0o777)
        own.listen(1_000)
        yield f"{folder}/socket"


@contextmanager
def _in_memory() -> Generator[str]:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(SECRET.encode())
        file.flush()
        os.chmod(file.name, 0o644)
        yield file.name


@contextmanager
def _segment() -> Generator[int]:
    """The key of shared memory of System V that everybody may use."""
    libc, key = ctypes.CDLL(None, use_errno=True), int.from_bytes(os.urandom(3), "big") + 1
    made = libc.shmget(key, 4096, _CREATE)
    if made < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    try:
        yield key
    finally:
        libc.shmctl(made, _REMOVE, None)


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    users = ("root", "user") if os.geteuid() == 0 else ("user",)
    with ExitStack() as stack:
        scene, number = Scene(stack), 0
        while number < HARNESS.targets[tier] or number % (len(PROBES) * len(users)):
            name = list(PROBES)[number // len(users) % len(PROBES)]
            user, number = users[number % len(users)], number + 1
            id = f"{number}-{name}-{user}"
            if case not in (None, id):
                continue
            found = scene.attempt(name, user, Random(f"{seed} {id}"), covered=True)
            result.tried += 1
            result.fired += "tried" in found
            if found.get("got"):
                result.add_failure(id, f"{name} as {user} gained {str(found['got'])[:200]}")
            else:
                result.survived += 1
    result.details["probes"] = len(PROBES)
    return result


def control(seed: int) -> list[Control]:
    """Each probe where it has to gain something."""
    made: list[Control] = []
    users = ("root", "user") if os.geteuid() == 0 else ("user",)
    with ExitStack() as stack:
        scene = Scene(stack)
        for name, probe in PROBES.items():
            for user in sorted(set(users) & set(probe.by.split())):
                found = scene.attempt(name, user, Random(f"{seed} {name}"), covered=False)
                made.append(Control(f"{name} as {user}", bool(found.get("got")), str(found)[:200]))
    return made
