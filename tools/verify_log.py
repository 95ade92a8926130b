#!/usr/bin/env python3
"""Check the hash chain of a Holdfast log; nothing of Holdfast is needed.

    python3 verify_log.py FILE…          the files of one log, in any order; .zst too

A line ends in ,"seq":N,"hash":"<64 hex>"}; its hash is sha256(previous hash + sha256(every byte
since the previous such line, up to ,"hash":)).  Exits 1 if there is a break, and prints where.
"""

import hashlib
import re
import sys

try:
    import zstandard
except ImportError:
    zstandard = None

SUFFIX = re.compile(rb',"seq":(0|[1-9]\d{0,18}),"hash":"([0-9a-f]{64})"\}\n')
REDACTED = re.compile(rb'\{"redacted":"([0-9a-f]{64})","seq":\d+')
NAME = re.compile(r"(.*?)(?:\.(\d+))?\.jsonl(?:\.zst)?")


def unpacked(path, file):
    if zstandard is None:
        sys.exit(f"{path} is packed: `pip install zstandard`, or unpack it")
    try:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    except zstandard.ZstdError as error:
        sys.exit(f"{path} cannot be unpacked: {error}")


def main(paths):
    previous, seq, gap, breaks = bytes(32), 0, b"", []
    files = {NAME.fullmatch(path).groups(): path for path in sorted(paths, reverse=True)}
    for path in (files[key] for key in sorted(files, key=lambda key: (key[0], int(key[1] or 0)))):
        with open(path, "rb") as file:
            data = unpacked(path, file) if path.endswith(".zst") else file.read()
        for number, line in enumerate(re.findall(rb"[^\n]*\n|[^\n]+$", data), 1):
            match = SUFFIX.search(line, max(0, len(line) - 104))
            if not match or match.end() != len(line):
                gap += line  # foreign or torn: sealed by the next line that is not
                continue
            stated, found = bytes.fromhex(match[2].decode()), int(match[1])
            covered = line[: -len(b',"hash":""}\n') - 64]
            inner = [hashlib.sha256(gap + covered).digest()]
            if redacted := REDACTED.fullmatch(covered):
                inner.append(bytes.fromhex(redacted[1].decode()))
            good = any(hashlib.sha256(previous + each).digest() == stated for each in inner)
            if found != seq + 1 or not good:
                why = "hash does not follow" if found == seq + 1 else f"expected seq {seq + 1}"
                breaks.append(f"{path}:{number}: seq {found}: {why}")
            previous, seq, gap = stated, found, b""
        breaks += [] if data else [f"{path}: empty"]
    print(*breaks, f"{seq} is the last line, {len(breaks)} breaks", sep="\n")
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if all(map(NAME.fullmatch, sys.argv[1:])) else __doc__)
