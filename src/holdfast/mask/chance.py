"""Whether something was drawn by chance, as keys are, or written by people.

Words have few pairs of letters among all that there could be, names of programs are made of words,
and digits stand at their ends.  What was drawn by chance has any letter after any other.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

_TURNS = re.compile(rb"[0-9][A-Za-z]|[A-Za-z][0-9]|[a-z][A-Z]|[A-Z][a-z]")
_CAMEL = re.compile(
    # Each word is taken once and for all: nothing here may go back over a long value.
    rb"[_a-z.:]*+[0-9]{0,3}+[_.:]?+(?>[A-Z]{1,6}[0-9]{0,3}[a-z]*[aeiouy][a-z]+[0-9]{0,3}[_.:-]?)++"
    rb"[A-Z]{0,4}[0-9]{0,2}[a-z]?"
    rb"|[a-z]{2,}+[0-9]{0,4}+(?>[._:-][a-z]++[0-9]{0,4}[a-z]?|[._:-][0-9]{1,4})++"
)
_DIGITS = b"0123456789"
_FOLLOWERS = """
    abcdgiklmnprstuvy baceijlorsuy cacehiklortu dadeilosu eacdefgilmnpqrstvwxy faefilortu gaehilnrsu
    haeiort iabcdefglmnoprstvxz jeaou keis ladefilostuy mabeimopsu nacdefgiklnostuv
    oabcdgiklmnoprstuvw paeiloprstuy qu racdegiklmnorstuy sacehilopstuy tacdehiloprstuy
    uabcefgilmnprst vaei waehinor xaceipt ypst ze
"""
"""A letter, and those that come after it in nearly all words of English and of programs."""


_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_JOINTS = b"_-./:+=~$!%,"
_LEAST, _LEAST_CHANCY, _LEAST_DRAWN = 14, 8, 20
_SURELY = 0.36
"""Of a hundred names that programs give, less than one is as odd; of a hundred keys, nearly all."""
_SURELY_WORDS = 0.42
_HARDLY = 0.12


@cache
def _usual() -> frozenset[tuple[int, int]]:
    words = {(line[0], after) for line in _FOLLOWERS.encode().split() for after in line[1:]} | {
        # An alphabet, a row of the same.
        *zip(_LETTERS, _LETTERS, strict=True),
        *pairwise(_LETTERS),
    }
    upper = {(a - 32, b - 32) for a, b in words}
    begun = {(a - 32, b) for a, b in words}
    humps = {(a, b - 32) for a in _LETTERS for b in _LETTERS}
    numbers = {(a, b) for a in _DIGITS for b in _DIGITS}
    joints = {(a, b) for joint in _JOINTS for b in range(256) for a in (joint,)}
    return frozenset(words | upper | begun | humps | numbers | joints | {(b, a) for a, b in joints})


def oddness(value: bytes) -> float:
    """How many of its neighbours do not belong together, of all; words have few, chance most."""
    size = len(value.translate(None, _JOINTS)) - 1
    if size < 1:
        return 0.0
    usual = sum(map(_usual().__contains__, pairwise(value)))
    return (len(value) - 1 - usual) / size


def random(value: bytes) -> bool:
    """Whether it was drawn by chance: long, and with neighbours that no word has."""
    size = len(value) - value.count(b"-") - value.count(b".") - value.count(b"_")
    if size < _LEAST or b" " in value:
        return False
    odd = oddness(value)
    if odd >= _SURELY:
        return True
    digits = count_digits(value)
    if odd < _HARDLY or (not digits and value.islower()) or _CAMEL.fullmatch(value):
        return digits == len(value) > _LEAST
    turns = len(_TURNS.findall(value))
    return turns * (11 if digits >= 2 else 4) >= size


def chancy(value: bytes) -> bool:
    """The same of something shorter; sure enough where a name tells."""
    if len(value) < _LEAST_CHANCY or b" " in value:
        return False
    if oddness(value) >= _SURELY:
        return True
    if (value.islower() and not count_digits(value)) or _CAMEL.fullmatch(value):
        return False
    return len(_TURNS.findall(value)) * 5 >= len(value)


def drawn(rest: bytes) -> bool:
    """The same of what comes after the name of an issuer, where names of programs come too."""
    digits = count_digits(rest)
    if oddness(rest) >= (_SURELY if digits else _SURELY_WORDS):
        return True
    if _CAMEL.fullmatch(rest):
        return False
    turns = len(_TURNS.findall(rest))
    if not digits:
        return turns * 3 >= len(rest) >= _LEAST_DRAWN
    if rest.lower() != rest and rest.upper() != rest:
        return turns * 9 >= len(rest) * 2
    return turns * 8 >= len(rest) >= _LEAST_DRAWN and digits >= 3


def count_digits(value: bytes) -> int:
    return len(value) - len(value.translate(None, _DIGITS))
