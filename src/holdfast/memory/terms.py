"""The words of a text as the index counts them: folded, without stop words, lightly stemmed."""

from __future__ import annotations

import re
import unicodedata

# Scripts without spaces are cut into characters.
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST = 64
"""Characters of a word that count: longer ones are encoded data."""
_STOPPED = """
a about above after again all also am an and any are aren as at be because been before being
between both but by can cannot could couldn d did didn do does doesn doing don down during each few
for from further had hadn has hasn have haven having he her here hers herself him himself his how i
if in into is isn it its itself just ll m me more most my myself no nor not now of off on once only
or other our ours ourselves out over own please re s same shall shan she should shouldn so some such
t than that the their theirs them themselves then there these they this those through to too under
until up us ve very was wasn we were weren what when where which while who whom whose why will with
won would wouldn you your yours yourself yourselves"""
STOP = frozenset(_STOPPED.split())


def terms(text: str) -> list[str]:
    """Every counted word of a text, in order, repeated as often as it stands there."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(each for each in decomposed if not unicodedata.combining(each))
    found: list[str] = []
    for word in _WORD.findall(text):
        lower = word.lower()
        if lower not in STOP:
            found.append(stem(lower[:_LONGEST]))
        # `HTTPServer` is found by `server` too.
        if lower != word and not word.istitle() and not word.isupper() and len(word) <= _LONGEST:
            parts = (part.lower() for part in _CAMEL.findall(word))
            found += [stem(part) for part in parts if part not in STOP and len(part) > 1]
    return found


def stem(word: str) -> str:
    """One form for `deploy`, `deploys`, `deployed` and `deploying`; other endings stay."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 3 and _VOWEL.search(root):
            word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
