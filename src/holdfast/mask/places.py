"""The places where a secret may stand: how they begin, and how they are told closely.

What begins a place is looked for in whole texts, by patterns that never go back; what tells it is
matched from there, within a bounded distance.
"""

from __future__ import annotations

import re
from functools import cache

from holdfast.mask.labels import MEDIUM, STRONG

STORES = (
    b"mongodb", b"srv", b"postgres", b"postgresql", b"mysql", b"mariadb", b"redis", b"rediss",
    b"amqp", b"amqps", b"mssql", b"sqlserver", b"clickhouse", b"cassandra", b"couchdb", b"neo4j",
    b"kafka", b"mqtt", b"ldap", b"ldaps", b"ftp", b"sftp", b"smtp", b"psycopg2", b"pymysql",
)  # fmt: skip
SURE = f"{STRONG}|{MEDIUM}"
_SIGN = r"(?:=>|->|:{1,3}=|\?=|={1,3}|:{1,2}|>|\|\||,)"
_GAP = r"(?:\\{1,4}[nrt]|[\x60'\"\s=\\]){0,8}"
_BETWEEN = r"(?:\\{1,4}t|[ \t\w.-]){0,24}(?:\\{1,4}[nrt]|[\s'\"\\\]]){0,8}(?:value)?"
LABEL = rf"(?i:{SURE}){_BETWEEN}{_SIGN}{_GAP}[^\s'\"\x60=\\(){{}}\[\]<>,;\x00]"
_NO_DIGIT, _ANY = r"[A-Za-z_+/=.~:$!-]", r"[A-Za-z0-9_+/=.~:$!-]"
_LEAST_RANDOM = 14
_WITH_A_DIGIT = "|".join(
    f"{_NO_DIGIT}{{{before}}}[0-9]{_ANY}{{{_LEAST_RANDOM - 1 - before}}}"
    for before in range(_LEAST_RANDOM)
)
_LETTERS_ONLY = r"[A-Za-z]{20,64}(?:[\s'\"\x60\\]|\z)"
WEAK = (
    rf"{_SIGN}{_GAP}"
    rf"(?:{_WITH_A_DIGIT}|{_NO_DIGIT}{{{_LEAST_RANDOM},48}}[0-9]|{_LETTERS_ONLY})"
)
_USER = (
    r"[\s'\"\[,]--?(?:[uU]|user|proxy-user)(?:\s{1,4}|=|\\{0,4}[\"'],? ?\\{0,4}[\"']|(?=[\"']))"
    r"\\{0,4}[\"']?([^\s:'\"\x00]{0,64})[\"']?:[\"']?([^\s'\"\\\x00]{0,256})"
)
_USER_BEGINS = r"(?:^|[\s'\"\[,])--?(?:[uU]|user|proxy-user)(?:[\s=]|\\{0,4}[\"'])"
_HEADER_BEGINS = (
    r"(?i:authorization|cookie)[\\\"']{0,4}[ \t]{0,8}[:=]|(?i:\bbearer)[ \t]{1,8}[A-Za-z0-9]{4}"
)
_SEALED_BEGINS = r"kind[\"']?:\s{0,8}[\"']?(?i:secret)\b"
_SENT_BEGINS = r"(?:-H|--header)[=\s'\"\\,]{1,8}[A-Za-z-]{0,40}(?i:key|token|auth|secret)"
_SHORT_BEGINS = r"(?i:sshpass\s|mysql[a-z]{0,8}\s)"
OPTION_BEGINS = rf"-[A-Za-z0-9_-]{{0,40}}(?i:{SURE})[A-Za-z0-9_-]{{0,20}}(?:\s|\\{{0,4}}[\"'])"
LOGIN_BEGINS = r":(?:\\{0,2}/){2}[^\s\x00]{0,300}@"

FIRST = "|".join(
    (_USER_BEGINS, _HEADER_BEGINS, _SHORT_BEGINS, _SENT_BEGINS, _SEALED_BEGINS, "-----BEGIN", LABEL)
)
"""Those that are looked for at once, beside the shapes of tokens."""

_CLOSE = {
    "label": rf"(?i)(?:({STRONG})|{MEDIUM}){_BETWEEN}({_SIGN})({_GAP})",
    "sign": f"({_SIGN})({_GAP})",
    "strong": f"(?i){STRONG}",
    "sure": f"(?i){SURE}",
    "login": r":(?:\\{0,2}/){2}([^\s/@:\"'<>\\\x00]{0,256})(?::([^\s/\"'<>\\\x00]{1,256}))?@",
    # The address of a database, in which people write a password as it is.
    "stored": (
        r":(?:\\{0,2}/){2}([^\s\x00]{1,128}?):(?![0-9]{2,5}[/,\"'])([^\s\x00]{1,256}?)"
        r"@(?=[A-Za-z0-9[])"
    ),
    "user": _USER,
    "user at once": _USER[11:],
    "option": (
        rf"--?[A-Za-z0-9_-]{{0,40}}(?i:{SURE})[A-Za-z0-9_-]{{0,20}}"
        r"(?:\s{1,8}|\\{0,4}[\"']\s{0,4},\s{0,4})\\{0,4}[\"']?([^\s\"'\\\x00-][^\s\"'\\\x00]{0,255})"
    ),
    "header": (
        r"(?i:authorization[\\\"']{0,4}[ \t]{0,8}[:=][ \t]{0,8}[\\\"']{0,4}"
        r"(?:(?:bearer|basic|token|negotiate|ntlm|api-?key)[ \t]{1,8}([^\s\\\"'\x60\x00]+)"
        r"|(?:digest|hawk|aws4-hmac-sha256)[ \t]{1,8}([^\r\n'\x60\x00]+)"
        r"|(?P<bare>[^\s\\\"'\x60\x00]{8,512}))"
        r"|\bbearer[ \t]{1,8}(?P<bearer>[A-Za-z0-9._~+/=-]{8,4096})"
        r"|cookie:[ \t]{0,8}(?P<cookie>[^\s'\"\x60=\x00]{1,64}=[^\r\n'\"\x60\x00]+))"
    ),
    "short": (
        r"(?i:sshpass\s{1,4}-p|mysql[a-z]{0,8}\s[^\n|;\x00]{0,100}\s-p)\s?([^\s\x00-][^\s\x00]{0,255})"
    ),
    "sent": (
        r"(?:-H|--header)[=\s'\"\\,]{1,8}[A-Za-z-]{0,40}(?i:key|token|auth|secret)[A-Za-z-]{0,20}:"
        r"[ \t]{0,8}([^\s\\\"'\x60\x00]{6,512}+)(?![ \t])"
    ),
    "sealed": (
        r"\b(?:d|stringD)ata[\"']?:[ \t]{0,8}"
        r"(?:((?:\r?\n[ \t]{1,16}[\"']?[\w.-]{1,200}[\"']?:[ \t]{1,8}\S[^\n\x00]*)+)"
        r"|\s{0,8}\{([^{}\x00]{1,8192})\}"
        r"|[^\n{}]{0,200}?\s[\"']?[\w.-]{1,200}[\"']?:\s{0,8}(?:\|\s{0,8})?[\"']?([\w+/=-]{8,8192}))"
    ),
    "begin": r"-----BEGIN[A-Z0-9 _-]{0,100}PRIVATE KEY[A-Z ]{0,20}-----",
}
"""What is matched where a scan found something."""


@cache
def close(name: str) -> re.Pattern[bytes]:
    return re.compile(_CLOSE[name].encode())
