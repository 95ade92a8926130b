"""How many secrets are found, in plain text and in other forms, how many that are none, how fast.

The samples are drawn from the rules of two scanners that know nothing of ours: every rule of
theirs that names a secret gives some texts which it finds itself.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import statistics
import subprocess
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from bench.frame import Absent, Bar, Outcome, Setup, rounded
from holdfast.mask import by_key_name

NO_SECRET = re.compile(
    r"client-id|account-id|app-id|application-id|-id(?:\.[0-9]+)?$|domain|username|user-name|hostname"
    r"|publishable|public-key|-email|-url(?:\.[0-9]+)?$|endpoint|subdomain|-host\.|-name(?:\.[0-9]+)?$"
    r"|-address$|token-repository"
)
"""Rules of theirs that find what belongs to a secret and is none."""

NEVER = re.compile(rb"[a-z][0-9]\x00")
"""In no text; looked for at each letter."""


class Sample(NamedTuple):
    rule: str
    text: str
    secret: str


def aside(rule: str) -> bool:
    """Whether the samples of a rule were not looked at when ours were improved: half of them."""
    return sha256(f"seen {rule}".encode()).digest()[0] >= 128


class Unavailable(Exception):
    """A scanner is not installed, or does not run here."""


ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "percent": lambda text: quote(text, safe=""),
    "json": lambda text: json.dumps({"log": text}),
    "json in json": lambda text: json.dumps({"body": json.dumps({"log": text})}),
    "html": lambda text: html.escape(text),
    "gzip in base64": lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode(),
}


def samples(each: int, seed: int) -> list[Sample]:
    """`each` texts for each rule of both scanners."""
    return [*kingfisher(each, seed), *detect_secrets(each, seed)]


def kingfisher(each: int, seed: int) -> Iterator[Sample]:
    try:
        package = Path(str(import_module("kingfisher").__file__)).parent
    except ImportError:
        raise Unavailable("kingfisher-bin is not installed") from None
    command = [str(package / "bin/kingfisher"), "rules", "list", "--format", "json"]
    try:
        listed = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"kingfisher does not run here: {error}") from error
    for rule in json.loads(listed):
        if not NO_SECRET.search(rule["id"]):
            yield from drawn(rule["id"], rule["pattern"], each, seed)


def detect_secrets(each: int, seed: int) -> Iterator[Sample]:
    try:
        import_module("detect_secrets")
    except ImportError:
        raise Unavailable("detect-secrets is not installed") from None
    util: Any = import_module("detect_secrets.core.plugins.util")
    for name, plugin in sorted(util.get_mapping_from_secret_type_to_class().items()):
        # Any quoted string of much entropy, and any public address, is no rule for a secret.
        if name in ("Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)"):
            continue
        if name == "Secret Keyword":
            yield from keywords(each, seed)
            continue
        if name == "Private Key":  # its rule is the first line; a key is more
            yield from private_keys(each, seed)
            continue
        for number, pattern in enumerate(getattr(plugin, "denylist", ())):
            yield from drawn(f"detect-secrets.{name}.{number}", pattern.pattern, each, seed)


def private_keys(each: int, seed: int) -> Iterator[Sample]:
    rng = Random(f"{seed} private keys")
    for kind in ("RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", ""):
        for _ in range(each):
            body = base64.encodebytes(rng.randbytes(rng.randint(100, 900))).decode()
            text = f"-----BEGIN {kind}PRIVATE KEY-----\n{body}-----END {kind}PRIVATE KEY-----\n"
            yield Sample(f"detect-secrets.Private Key.{kind.strip()}", text, body[:60])


def keywords(each: int, seed: int) -> Iterator[Sample]:
    """The rule by names: their names and the ways they are written, with passwords of ours."""
    plugin: Any = import_module("detect_secrets.plugins.keyword")
    rng = Random(f"{seed} keywords")
    signs = ('{} = "{}"', "{}='{}'", '"{}": "{}"', "{}: {}", "{}={}")
    letters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    for pattern in plugin.DENYLIST:
        for _ in range(each):
            name = xeger(pattern, rng)
            value = "".join(rng.choice(letters) for _ in range(rng.randint(12, 32)))
            yield Sample(
                f"detect-secrets.keyword.{pattern}", rng.choice(signs).format(name, value), value
            )


def drawn(rule: str, pattern: str, each: int, seed: int) -> Iterator[Sample]:
    """Texts by chance that the pattern finds."""
    rng, check = Random(f"{seed} {rule}"), finder(pattern)
    made = 0
    for _ in range(each * 20):
        try:
            text = xeger(pattern, rng)
        except Exception:  # a pattern of a dialect that cannot be drawn from: counted as no sample
            return
        if (secret := check(text)) and len(secret) >= 6:
            made += 1
            yield Sample(rule, text, secret)
        if made == each:
            return


def finder(pattern: str) -> Callable[[str], str | None]:
    re2: Any = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 256 << 20
    try:
        compiled: Any = re2.compile(pattern, options)
    except Exception:  # it looks ahead or behind
        compiled = re.compile(pattern)

    def find(text: str) -> str | None:
        found = compiled.search(text)
        if not found:
            return None
        groups = [group for group in found.groups() if group]
        return groups[0] if len(groups) == 1 else found.group()

    return find


def xeger(pattern: str, rng: Random) -> str:
    """A text by chance that the pattern matches, if what looks ahead and behind allows it."""
    parser: Any = import_module("re._parser")
    plain = re.sub(r"\(\?[a-zA-Z]+\)", "", pattern)
    plain = re.sub(r"\(\?[a-zA-Z]*-?[a-zA-Z]*:", "(?:", plain).replace(r"\z", r"\Z")
    verbose = re.VERBOSE if re.match(r"\(\?[a-zA-Z]*x", pattern.strip()) else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return drawn_from(parser.parse(plain, verbose), rng)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORD = LETTERS + "0123456789_"
ANY = LETTERS * 3 + "0123456789" * 3 + "_-.!$*~+"
"""What stands where a pattern takes anything: mostly letters and digits, as it does in life."""
CATEGORIES = {"DIGIT": "0123456789", "SPACE": "    \t\n", "WORD": WORD, "NOT_SPACE": ANY}
MOST_MORE = 12
"""How much longer than it must be a repetition without a near end is made."""


def drawn_from(parsed: Any, rng: Random) -> str:
    return "".join(piece(str(code), value, rng) for code, value in parsed)


def piece(code: str, value: Any, rng: Random) -> str:
    match code:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return rng.choice(ANY.replace(chr(value), ""))
        case "ANY":
            return rng.choice(ANY)
        case "IN":
            return rng.choice(members(value))
        case "BRANCH":
            return drawn_from(rng.choice(value[1]), rng)
        case "SUBPATTERN":
            return drawn_from(value[-1], rng)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, what = value
            # Space is endless in rules and short in life.
            more = 3 if not drawn_from(what, rng).strip() else max(MOST_MORE, 24 - int(least))
            times = rng.randint(int(least), min(int(most), int(least) + more))
            return "".join(drawn_from(what, rng) for _ in range(times))
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return ""
        case _:
            raise ValueError(code)


def members(value: Any) -> list[str]:
    found: list[str] = []
    for code, inner in value:
        match str(code):
            case "LITERAL":
                found.append(chr(inner))
            case "RANGE":
                found += map(chr, range(inner[0], inner[1] + 1))
            case "CATEGORY":
                found += CATEGORIES[str(inner).removeprefix("CATEGORY_")]
    if str(value[0][0]) == "NEGATE":
        return [one for one in ANY if one not in found]
    return found


def leaks(mask: Callable[[str], str], sample: Sample, encoding: str | None = None) -> bool:
    """Whether the secret can still be read in what is left of its text."""
    text = ENCODINGS[encoding](sample.text) if encoding else sample.text
    masked = mask(text)
    return masked == text or sample.secret in masked


def source_files(most: int, seed: int) -> list[bytes]:
    """Sources of the standard library and of what we install, by chance, as one real tree."""
    library, installed = (Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib"))
    # What else an interpreter has got differs from machine to machine.
    own = (path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    paths = sorted([*own, *installed.rglob("*.py")])
    Random(f"{seed} sources").shuffle(paths)
    chosen: list[bytes] = []
    for path in paths:
        data = path.read_bytes()
        with suppress(UnicodeDecodeError):
            data.decode()
            chosen.append(data)
        if sum(map(len, chosen)) >= most:
            break
    return chosen


def false_hits(mask: Callable[[str], str], sources: list[bytes]) -> tuple[int, int]:
    """How many lines were changed, and of how many; a secret in a test or a manual counts too."""
    changed = lines = 0
    for data in sources:
        text = data.decode()
        lines += text.count("\n") + 1
        masked = mask(text)
        if masked != text:
            before = Counter(text.split("\n"))
            changed += max(1, sum((before - Counter(masked.split("\n"))).values()))
    return changed, lines


def masker() -> Callable[[str], str]:
    mask = by_key_name(lambda: b"k" * 32)
    return lambda text: mask({"text": text})["text"]


def mixed(sources: list[bytes], seed: int) -> list[str]:
    """Texts as logs have them: sources, and one in twenty in another form."""
    rng = Random(f"{seed} mixed")
    forms = list(ENCODINGS.values())
    texts: list[str] = []
    for data in sources:
        text = data.decode()
        texts.append(rng.choice(forms)(text) if rng.random() < 0.05 else text)
    return texts


def seconds_over(texts: list[str], work: Callable[[str], object]) -> float:
    started = time.process_time()
    for text in texts:
        work(text)
    return time.process_time() - started


def one_scan(text: str) -> object:
    """What it takes at least: to encode a text, and to have one pattern look through it."""
    return NEVER.sub(b"", text.encode())


def run(setup: Setup) -> Outcome:
    outcome, mask = Outcome(), masker()
    sources = source_files(int(setup.pick(40e6, 4e6)), setup.seed)
    texts = mixed(sources, setup.seed)
    for text in texts[: len(texts) // 2]:  # what is compiled when it is first needed
        mask(text)
    size = sum(len(text.encode()) for text in texts)
    rates, raw_rates = [], []
    for _ in range(setup.pairs):
        rates.append(size / seconds_over(texts, mask) / 1e6)
        raw_rates.append(size / seconds_over(texts, one_scan) / 1e6)
    rate = statistics.median(rates)
    outcome.bars.append(
        Bar(
            "texts with encodings masked",
            rate,
            ">=",
            50,
            "MB/s",
            timed=True,
            beside=tuple(raw_rates),
        )
    )
    changed, lines = false_hits(mask, sources)
    outcome.bars.append(Bar("false hits", changed / lines * 100, "<=", 0.1, "% of lines"))
    try:
        drawn = samples(int(setup.pick(20, 2)), setup.seed)
    except Unavailable as reason:
        outcome.absent.append(Absent("recall", str(reason)))
        return outcome
    halves: dict[bool, list[bool]] = {False: [], True: []}
    for sample in drawn:
        halves[aside(sample.rule)].append(not leaks(mask, sample))
    for encoding, least in ((None, 99.0), *((name, 95.0) for name in ENCODINGS)):
        found = sum(not leaks(mask, sample, encoding) for sample in drawn)
        bar = Bar(f"recall, {encoding or 'plain'}", found / len(drawn) * 100, ">=", least, "%")
        outcome.bars.append(bar)
    outcome.numbers = {
        "recall of rules looked at first": statistics.mean(halves[False]) * 100,
        "recall of rules held aside": statistics.mean(halves[True]) * 100,
        "samples": len(drawn),
        "rules": len({sample.rule for sample in drawn}),
        "lines": lines,
        "changed": changed,
        "MB/s": rounded(rates),
        "MB/s of one scan": rounded(raw_rates),
    }
    return outcome
