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
        self._links: dict[str, tuple[float, int | None]] = {}
        """Until when each holds, and the only user whom it lets in, if there is one."""
        self._cookies: dict[str, float] = {}
        self.token = secrets.token_urlsafe(32)

    def link(self, user: int | None = None) -> str:
        """A key that opens the door once, to this user only if one is named."""
        key, now = secrets.token_urlsafe(32), self._clock.boottime()
        fresh = {old: held for old, held in self._links.items() if held[0] > now}
        self._links = dict(list(fresh.items())[-_MOST_LINKS:])
        self._links[key] = now + LINK_SECONDS, user
        return key

    def enter(self, key: str, user: int | None) -> str | None:
        """The cookie that a link buys; None if it is used, too old, another user's, or none."""
        until, only = self._links.get(key, (0.0, None))
        if until <= self._clock.boottime() or only not in (None, user):
            return None
        del self._links[key]
        cookie, now = secrets.token_urlsafe(32), self._clock.boottime()
        self._cookies = {old: until for old, until in self._cookies.items() if until > now}
        self._cookies[cookie] = now + COOKIE_SECONDS
        return cookie

    def knows(self, cookie: str) -> bool:
        return self._cookies.get(cookie, 0.0) > self._clock.boottime()

    def allows_changes(self, token: str) -> bool:
        return compare_digest(token.encode("utf-8", "replace"), self.token.encode())
