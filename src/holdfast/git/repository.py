"""A private repository of ours: objects and refs, and no files checked out.

What a folder holds is kept as a commit whose tree we build entry by entry, so that neither
attributes, filters nor line endings come between the bytes of a file and the bytes that are kept.
Nothing in it is ever collected: each commit has a ref, and `gc` is never run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from threading import Timer
from typing import IO, NamedTuple, Protocol

from holdfast.errors import DiskFull, NotFound, StorageError
from holdfast.git import call
from holdfast.git.durable import sync, sync_whole
from holdfast.git.incoming import incoming

FILE, PROGRAM, LINK, FOLDER, MODULE = 0o100644, 0o100755, 0o120000, 0o040000, 0o160000
_CHUNK = 1 << 20
_MUCH = 2 << 20
_LARGE = 256 << 20
_REMEMBERED = 16
_OURS = "Holdfast <holdfast@localhost>"
_OWN = {
    # A tree that a log names has to be there after a power cut too.
    "core.fsync": "all",
    "core.bigFileThreshold": "32m",
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "core.quotePath": "true",
}
_OBJECTS_ONLY = {"core.commitGraph": "false", "core.multiPackIndex": "false"}
"""Of a foreign folder nothing is believed that only repeats what its objects say."""


AMONG_OTHERS = {"ls-files": 300.0, "pack-objects": 900.0}
"""What reads where an agent writes, and how long it may take there.

Whatever stands there in place of a file, a pipe for example, could hold it up for ever.
"""


class Entry(NamedTuple):
    mode: int
    id: str
    """Of the blob; empty for a folder that holds nothing."""


Tree = dict[str, Entry]
"""Files by their paths, which are spelt as `os.fsdecode` does."""
Content = tuple[int, Iterable[bytes]]
"""How many bytes, and these."""


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class Repository:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.held: tuple[int, ...] = ()
        """Descriptors that live as long as a git of ours that writes, even if we die first."""
        self._known: dict[tuple[str, ...], bytes] = {}
        """What the last few commits hold, which nothing changes."""

    def ask(
        self,
        *words: str,
        given: bytes = b"",
        index: str | None = None,
        files: str | None = None,
        borrow: str | None = None,
        aside: str | None = None,
        user: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> bytes:
        """What git answers here; `files` is a work tree, `borrow` other objects to read.

        With `aside` it answers there, and knows what is here too.
        """
        env = {**self._env(index, files, borrow, aside), **(user or {})}
        ran = self._run(words, given, env, settings or {})
        if ran.code != 0:
            raise call.refused(("git", *words), ran.said, self.directory)
        return ran.out

    def tells(self, *words: str) -> str | None:
        """A line that git answers; None if it says no."""
        ran = self._run(words, b"", self._env(), {})
        if ran.code not in (0, 1, 128):
            raise call.refused(("git", *words), ran.said, self.directory)
        return ran.out.decode("utf-8", "replace").strip() if ran.code == 0 else None

    def _of_commit(self, commit: str, *words: str) -> bytes:
        """What git answers about a commit or tree; remembered where it is named by its hash."""
        if len(commit) < 40:
            return self.ask(*words)
        if words not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[words] = self.ask(*words)
        return self._known[words]

    def root(self, commit: str) -> str:
        """The tree of a commit."""
        return self._of_commit(commit, "rev-parse", f"{commit}^{{tree}}").decode().strip()

    def commit_of(self, name: str) -> str | None:
        return self.tells(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )

    def keep(self, refs: Mapping[str, str]) -> None:
        """Let refs point to commits, whatever they pointed to."""
        if refs:
            for ref in refs:
                self._unlock(ref)
            lines = (f"update {ref} {commit}\n" for ref, commit in refs.items())
            self.ask("update-ref", "--stdin", given="".join(lines).encode())

    # --- made -------------------------------------------------------------------------------

    def create(self, like: str | None = None) -> None:
        """Make it, empty, or with all that the repository `like` has.

        It borrows nothing, so that whatever is done to the other one, this one stays whole.
        Objects are copies; of a very large one they are hard links, where these are possible.
        """
        kind = ("--quiet", "--bare", "--template=")
        theirs = Repository(like) if like is not None else None
        if theirs is None or theirs.tells("rev-list", "-n", "1", "--all") == "":
            # Git forgets what hash an empty one has when it clones it.
            self.format = theirs.format if theirs is not None else "sha1"
            words = ("init", *kind, f"--object-format={self.format}", "--", self.directory)
        else:
            copy = () if _is_large(theirs.directory) else ("--no-hardlinks",)
            kind = (*kind, "--no-tags", "--dissociate", *copy)
            words = ("clone", *kind, "--", theirs.directory, self.directory)
        line = call.command(*words, settings=_OWN)
        ran = call.run(line, call.environment(), patience=call.LONG, held=self.held)
        if ran.code != 0:
            raise call.refused(("git", *words), ran.said, like or self.directory)

    def settle(self) -> None:
        """Let all that it holds be there after a power cut, which `create` does not see to."""
        sync_whole(self.directory)

    def settle_name(self) -> None:
        """Let it be found after a power cut where it was moved to."""
        sync(os.path.dirname(self.directory))

    @cached_property
    def format(self) -> str:
        """The hash that names its objects: sha1 or sha256."""
        return self.ask("rev-parse", "--show-object-format").decode().strip()

    def config(self, *, bare: bool = True) -> str:
        """The only settings that belong into it, or into one that borrows from it."""
        extra = "[extensions]\n\tobjectFormat = sha256\n" if self.format == "sha256" else ""
        said = f"\trepositoryformatversion = {int(bool(extra))}\n\tbare = {str(bare).lower()}\n"
        return f"[core]\n{said}{extra}"

    # --- trees ------------------------------------------------------------------------------

    def tree(self, name: str) -> Tree:
        """The files of a commit or tree, modules of others included."""
        try:
            words = ("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", name)
            listed = self._of_commit(name, *words)
        except StorageError as error:
            raise NotFound(
                f"no such snapshot: {name[:80]}",
                hint="it belongs to another job, or the job's repository was damaged",
                path=self.directory,
            ) from error
        found: Tree = {}
        for line in filter(None, listed.split(b"\0")):
            about, _, path = line.partition(b"\t")
            mode, _, blob = about.decode("ascii").split(" ")
            found[os.fsdecode(path)] = Entry(int(mode, 8), blob)
        return found

    def id_of(self, size: int, content: Iterable[bytes]) -> str:
        """The id that a blob with this content has."""
        digest = self.blob_digest(size)
        for piece in content:
            digest.update(piece)
        return digest.hexdigest()

    def blob_digest(self, size: int) -> Digest:
        """What has taken the whole content of a blob has its id."""
        return hashlib.new(self.format, b"blob %d\0" % size, usedforsecurity=False)

    def commit(
        self,
        message: str,
        *,
        changed: Mapping[str, Entry | None],
        upon: str | None,
        contents: Iterable[Content],
        parents: Sequence[str] = (),
    ) -> tuple[str, str]:
        """A commit of what differs from the tree `upon`, and its own; None is a file that is gone.

        `contents` are the blobs that may not be here yet; who makes them may still put right in
        `changed` what a file turns out to hold.  Author and time are the same for every one, so
        that the same files and parents give the same id.  No ref names it.
        """
        said = _as_import(message, changed, upon, contents, parents)
        begun = list(_until(said, _MUCH))
        # Few objects are unpacked into files of their own: much would need its room twice for that.
        much = {"fastimport.unpackLimit": "0"} if sum(map(len, begun)) >= _MUCH else {}
        line = call.command("fast-import", "--quiet", "--force", settings=_OWN | much)
        with (
            incoming(self.directory, self.config()) as aside,
            self._talk(line, self._env(aside=aside)) as process,
        ):
            assert process.stdin and process.stdout
            for piece in chain(begun, said):
                process.stdin.write(piece)
            process.stdin.close()
            listed, made = process.stdout.readline(), process.stdout.readline()
        return made.decode("ascii").strip(), listed.split(b"\t")[0].decode("ascii").split(" ")[2]

    def write_tree(self, index: str, upon: str | None, changed: Mapping[str, Entry | None]) -> str:
        """The tree of `upon` with changes, as git itself would make it; `index` is scratch."""
        self._unlock(index)
        self.ask("read-tree", *((upon,) if upon else ("--empty",)), index=index)
        zero = "0" * (64 if self.format == "sha256" else 40)
        # What is gone goes first: a folder may stand where a file was.
        lines = [
            b"0 %s\t%s\0" % (zero.encode(), os.fsencode(p)) for p, e in changed.items() if not e
        ]
        lines += [
            b"%o %s\t%s\0" % (entry.mode, entry.id.encode(), os.fsencode(path))
            for path, entry in changed.items()
            if entry
        ]
        self.ask("update-index", "-z", "--index-info", given=b"".join(lines), index=index)
        return self.ask("write-tree", index=index).decode().strip()

    def commit_tree(
        self, tree: str, parents: Sequence[str], message: str, identity: tuple[str, str]
    ) -> str:
        """A commit of now, by somebody; no ref names it."""
        words = ("commit-tree", tree, *(word for parent in parents for word in ("-p", parent)))
        user = {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in zip(("NAME", "EMAIL"), identity, strict=True)
        }
        return self.ask(*words, given=f"{message}\n".encode(), user=user).decode().strip()

    def merge_tree(self, ours: str, theirs: str) -> tuple[str, list[str]]:
        """The tree that has both, and the paths that conflict in it; no file is touched."""
        words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
        ran = self._run(words, b"", self._env(), {})
        if ran.code not in (0, 1):
            raise call.refused(("git", *words), ran.said, self.directory)
        tree, *paths = filter(None, ran.out.split(b"\0"))
        return tree.decode("ascii"), [os.fsdecode(path) for path in paths]

    @contextmanager
    def reading(self) -> Generator[Blobs]:
        """The contents of blobs, one after the other, by one process."""
        line = call.command("cat-file", "--batch", settings=_OWN)
        with self._talk(line, self._env()) as process:
            yield Blobs(process)

    def differences(
        self, old: str, new: str, *options: str, path: str | None = None, binary: bool = False
    ) -> bytes:
        """What `git diff` says of two trees, or of one file in them."""
        plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
        only = ("--", path) if path is not None else ()
        words = ("diff-tree", "-r", *plain, *options, old, new, *only)
        if not binary:
            return self.ask(*words)
        with tempfile.TemporaryDirectory() as scratch:
            rules = os.path.join(scratch, "attributes")
            with open(rules, "w", encoding="ascii") as file:  # direct write: scratch, no home
                file.write("* -diff\n")
            return self.ask(*words, settings={"core.attributesFile": rules})

    # --- commits of others ------------------------------------------------------------------

    def take(self, objects: str, tips: Sequence[str], known: Sequence[str]) -> bool:
        """Copy commits with all that belongs to them out of a foreign folder of objects.

        Nothing but objects is read there, least of all its settings, and each is named by what it
        holds, not by what it is called there.  False if some are missing or unfit.
        """
        if not _has_only_files(objects):
            return False
        wanted = "".join(f"{tip}\n" for tip in tips) + "".join(f"^{each}\n" for each in known)
        try:
            with incoming(self.directory, self.config()) as aside:
                self._copy(objects, wanted.encode("ascii"), aside)
                self._check_whole(tips, wanted.encode("ascii"), aside)
        except DiskFull:
            raise
        except StorageError:
            return False
        return True

    def _copy(self, objects: str, wanted: bytes, aside: str) -> None:
        made = os.path.join(aside, "given")
        words = ("pack-objects", "--revs", "--quiet", "--non-empty", "--delta-base-offset", made)
        names = self.ask(*words, given=wanted, borrow=objects, settings=_OBJECTS_ONLY)
        for name in names.decode("ascii").split():
            # Without its index, which has the names that were claimed.
            pack = os.path.join(aside, "objects", "pack", f"pack-{name}.pack")
            os.rename(f"{made}-{name}.pack", pack)  # noqa: TID251 - made by git, in scratch
            self.ask("index-pack", "--strict", pack, aside=aside)

    def _check_whole(self, tips: Sequence[str], wanted: bytes, aside: str) -> None:
        words = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
        asked = "".join(f"{tip}\n" for tip in tips).encode("ascii")
        found = self.ask(*words, given=asked, aside=aside).decode("ascii")
        if found != "".join(f"{tip} commit\n" for tip in tips):
            raise StorageError("not all of them are commits")
        self.ask("rev-list", "--objects", "--quiet", "--stdin", given=wanted, aside=aside)

    def _unlock(self, name: str) -> None:
        """Remove the lock that a git which was killed left; nobody but our caller works here."""
        with suppress(FileNotFoundError):
            os.unlink(f"{os.path.join(self.directory, name)}.lock")  # noqa: TID251 - not the store's

    # --- calling ----------------------------------------------------------------------------

    def _env(
        self,
        index: str | None = None,
        files: str | None = None,
        borrow: str | None = None,
        aside: str | None = None,
    ) -> dict[str, str]:
        env = call.environment()
        place = aside or self.directory
        env |= {"GIT_DIR": place, "GIT_COMMON_DIR": place}
        env["GIT_SHALLOW_FILE"] = os.path.join(self.directory, "shallow")
        if index is not None:
            env["GIT_INDEX_FILE"] = index
        if files is not None:
            env["GIT_WORK_TREE"] = files
        if borrow is not None:
            # Quoted, as a colon would start another one.
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = quoted(borrow).decode(
                "utf-8", "surrogateescape"
            )
        return env

    def _run(
        self,
        words: Sequence[str],
        given: bytes,
        env: Mapping[str, str],
        settings: Mapping[str, str],
    ) -> call.Ran:
        line = call.command(*words, settings={**_OWN, **settings})
        if (patience := AMONG_OTHERS.get(words[0])) is not None:
            # Should it wait for ever, then not with a lock that we left to it.
            return call.run(line, env, given=given, patience=patience)
        return call.run(line, env, given=given, patience=call.LONG, held=self.held)

    @contextmanager
    def _talk(self, line: list[str], env: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
        """A process that is spoken to; an error if it does not end well."""
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                line,
                env=env,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                pass_fds=self.held,
            ) as process,
        ):
            watch = Timer(call.LONG, call.end, (process,))
            watch.daemon = True
            watch.start()
            try:
                yield process
                assert process.stdin
                process.stdin.close()
                ended = process.wait()
            except (BrokenPipeError, EOFError):
                ended = process.wait() or -1
            finally:
                watch.cancel()
                if process.poll() is None:
                    call.end(process)
            if ended != 0:
                errors.seek(0)
                said = call.told(ended, errors.read(_CHUNK))
                raise call.refused(line, said, self.directory)


class Blobs:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout
        self._ask, self._hear = process.stdin, process.stdout

    def content(self, blob: str) -> Iterator[bytes]:
        """In pieces, which have to be taken to the end before the next one is asked for."""
        self._ask.write(f"{blob}\n".encode("ascii"))
        self._ask.flush()
        header = self._hear.readline().decode("ascii", "replace").split()
        if not header:
            raise EOFError
        if len(header) != 3:
            raise NotFound(
                f"an object is missing: {blob}",
                hint="the job's repository was damaged; the files of this snapshot are lost",
            )
        yield from _pieces(self._hear, int(header[2]))
        self._hear.read(1)


def _pieces(stream: IO[bytes], left: int) -> Iterator[bytes]:
    while left:
        piece = stream.read(min(left, _CHUNK))
        if not piece:
            raise EOFError
        left -= len(piece)
        yield piece


def _until(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """As many as make up a size together, if there are so many."""
    while size > 0 and (piece := next(pieces, None)) is not None:
        size -= len(piece)
        yield piece


def _as_import(
    message: str,
    changed: Mapping[str, Entry | None],
    upon: str | None,
    contents: Iterable[Content],
    parents: Sequence[str],
) -> Iterator[bytes]:
    """The commit in the language of fast-import."""
    yield b"feature done\n"
    for size, pieces in contents:
        yield b"blob\ndata %d\n" % size
        yield from pieces
        yield b"\n"
    said = message.encode("utf-8", "replace")
    yield b"commit refs/heads/made\nmark :1\ncommitter %s 0 +0000\n" % _OURS.encode()
    yield b"data %d\n%s\n" % (len(said), said)
    for word, parent in zip(("from", *("merge" for _ in parents)), parents, strict=False):
        yield f"{word} {parent}\n".encode("ascii")
    yield f'M 040000 {upon} ""\n'.encode("ascii") if upon else b"deleteall\n"
    for path, entry in changed.items():
        if entry is None:
            yield b"D %s\n" % quoted(path)
    for path, entry in changed.items():
        if entry is not None:
            yield b"M %o %s %s\n" % (entry.mode, entry.id.encode("ascii"), quoted(path))
    yield b'\nls :1 ""\nget-mark :1\ndone\n'


def _has_only_files(folder: str) -> bool:
    """Whether git can open all that is in a folder: for a pipe it would wait, a link leads out."""
    pending = [folder]
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        return False
    except OSError:
        return False
    return True


def _is_large(directory: str) -> bool:
    sizes = 0
    with suppress(OSError), os.scandir(os.path.join(directory, "objects", "pack")) as packs:
        sizes = sum(pack.stat().st_size for pack in packs)
    return sizes > _LARGE


def quoted(path: str) -> bytes:
    """A path between quotation marks, as git reads it."""
    said = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%s"' % said
