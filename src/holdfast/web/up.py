"""The verb that opens the dashboard."""

from __future__ import annotations

import sys
from typing import Annotated

from holdfast.errors import Busy, ConfigError, NotFound, UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@example("holdfast up")
def up(
    context: Context,
    *,
    port: Annotated[int | None, Arg("On this port, not the first free one from 4713")] = None,
    host: Annotated[
        str, Arg("Where to listen; others than this machine see all of it")
    ] = "127.0.0.1",
    read_only: Annotated[bool, Arg("Let nobody change anything")] = False,
    open: Annotated[bool, Arg("Open the page in a browser")] = False,
    attach: Annotated[bool, Arg("Only give a link to one that is up")] = False,
) -> Show:
    try:
        from holdfast.web.server import EVERYWHERE, IsUp, Served, bound, new_link, running, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the dashboard needs {error.name}", hint="pip install 'holdfast[web]'"
        ) from None
    if port is not None and not 0 <= port < 65536:
        raise UsageError(f"not a port: {port}", hint="1 to 65535")
    home = context.home(create=True)

    def tell(link: str) -> None:
        print(f"Holdfast is up: {link}", file=sys.stderr)
        print(
            "The link works once, within a minute; `holdfast up` prints another.", file=sys.stderr
        )
        if open:
            import webbrowser

            # Every user of the machine sees the words of a browser's command: that link is for us.
            webbrowser.open(link)

    def attached(served: Served) -> Show:
        try:
            link = new_link(served, own_user=open)
        except OSError as error:
            raise Busy(
                f"a dashboard of this home is up as process {served.owner.pid} and does not answer",
                hint=f"end it: kill {served.owner.pid}",
            ) from error
        tell(link)
        return Show({"url": served.url, "link": link, "attached": True}, text="")

    if (served := running(home)) is not None:
        return attached(served)
    if attach:
        raise NotFound("no dashboard of this home is up", hint="`holdfast up` starts one")
    listener = bound("127.0.0.1" if host == "localhost" else host, port)

    def ready(served: Served, link: str) -> None:
        if host not in _LOOPBACK:
            _warn_of_others(host, everywhere=host in EVERYWHERE)
        tell(link)

    from holdfast.ops.table import TABLE

    layout = None if context.layout.name == "holdfast" else context.layout.name
    try:
        serve(home, layout, TABLE, listener, read_only=read_only, own_user=open, ready=ready)
    except IsUp as other:
        return attached(other.served)
    finally:
        listener.close()
    return Show({"url": None, "attached": False}, text="")


def _warn_of_others(host: str, *, everywhere: bool) -> None:
    """At once: what a verb warns of is told when it has ended, and this one serves until then."""
    told = f"warning: listening on {host}: whoever reaches it and has a link sees everything"
    print(told, file=sys.stderr)
    if everywhere:
        print(
            "From elsewhere, replace hf-….localhost by an address or the name of this machine.",
            file=sys.stderr,
        )
