"""Who may come in: links that work once, the cookies they buy, and the token for changes.

A link is for the person at the terminal: whoever opens it first, within a minute, gets a
cookie and the token.  The cookie only reads.  To change something a caller shows the token in a
header, which no other site can make a browser send.
"""

from __future__ import annotations

import secrets
from hmac import compare_digest

from holdfast.clock import Clock

LINK_SECONDS = 60.0
COOKIE_SECONDS = 12 * 3600.0
_MOST_LINKS = 100


class Keys:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, float] = {}
        self._cookies: dict[str, float] = {}
        self.token = secrets.token_urlsafe(32)

    def link(self) -> str:
        """A key that opens the door once."""
        key, now = secrets.token_urlsafe(32), self._clock.boottime()
        fresh = {old: until for old, until in self._links.items() if until > now}
        self._links = dict(list(fresh.items())[-_MOST_LINKS:])
        self._links[key] = now + LINK_SECONDS
        return key

    def enter(self, key: str) -> str | None:
        """The cookie that a link buys; None if it was used, is too old, or is none."""
        if self._links.pop(key, 0.0) <= self._clock.boottime():
            return None
        cookie, now = secrets.token_urlsafe(32), self._clock.boottime()
        self._cookies = {old: until for old, until in self._cookies.items() if until > now}
        self._cookies[cookie] = now + COOKIE_SECONDS
        return cookie

    def knows(self, cookie: str) -> bool:
        return self._cookies.get(cookie, 0.0) > self._clock.boottime()

    def allows_changes(self, token: str) -> bool:
        return compare_digest(token.encode("utf-8", "replace"), self.token.encode())
