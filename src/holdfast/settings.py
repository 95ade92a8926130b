"""What holdfast.toml says, parsed once when its home is opened.

What every verb needs is checked then; a mistake in the rest stops only what reads it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from holdfast.clock import zone
from holdfast.errors import ConfigError, NewerFormat, UsageError
from holdfast.text import duration, size

SETTINGS = "holdfast.toml"
FORMAT = 1
TEMPLATE = """\
# A Holdfast home.  `format` and `timezone` stay as they are once there is data.
format = {}
timezone = "{}"

# How often an agent is expected to be heard of, and when silence counts as offline.
heartbeat = "60s"
offline_after = "300s"

# Event types of the ledger beside heartbeat, task_start, task_result, error and info.
# [ledger]
# extra_events = ["deploy", "review"]

# After how much a log goes on in the next file.
# [log]
# rotate_at = "100MB"
"""
_LONGEST = 3650 * 86400.0
_LARGEST = 1 << 40
_MOST_USD = 1e12

Table = Mapping[str, Any]
_KNOWN: Table = {
    "format": 1,
    "timezone": "",
    "heartbeat": "",
    "offline_after": "",
    "stale_after": "",
    "alert_every": "",
    "layout": "",
    "ledger": {"extra_events": [], "throttle": ""},
    "log": {"rotate_at": ""},
    "budget": {"session_usd": 0.0, "agent_day_usd": 0.0, "fleet_day_usd": 0.0},
    "tasks": {"park_after": 0},
    "models": {"default": "", "fallback": [], "per_minute": 0},
    "memory": {"embedder": "", "decay": 0.0, "fresh": 0.0},
    "agents": {
        "*": {
            "session_usd": 0.0,
            "day_usd": 0.0,
            "model": "",
            "measure": {"sources_archived": ""},
        }
    },
}
"""Every setting that is read, with any value; `*` stands for the name of an agent."""
_OF_ONE = ("session_usd", "day_usd")


class Budget(NamedTuple):
    """In USD; None is no limit."""

    session: float | None = None
    agent_day: float | None = None
    fleet_day: float | None = None


class Settings(NamedTuple):
    format: int = FORMAT
    timezone: str = "UTC"
    heartbeat: float = 60.0
    """How often a living agent is expected to report, in seconds."""
    offline_after: float = 300.0
    """After how many seconds of silence it counts as offline."""
    extra_events: tuple[str, ...] = ()
    """Event types of the ledger beside the built-in ones."""
    rotate_at: int = 100_000_000
    """After how many bytes a log goes on in the next file."""
    tables: Table = MappingProxyType({})
    """The whole file."""

    @property
    def layout(self) -> str | None:
        """Another system's directory layout, if the home has one."""
        return None if (name := self.tables.get("layout")) is None else str(name)

    @property
    def stale_after(self) -> float:
        """After how many seconds a report counts as stale."""
        return _seconds(self.tables, "stale_after", 2 * 86400.0)

    @property
    def alert_every(self) -> float:
        """After how many seconds a lasting trouble is reported again."""
        return _seconds(self.tables, "alert_every", 1800.0)

    @property
    def throttle(self) -> float | None:
        """For how many seconds the same event is counted instead of written."""
        ledger = table(self.tables, "ledger")
        return _seconds(ledger, "throttle", 0.0, "ledger.") if "throttle" in ledger else None

    @property
    def park_after(self) -> int:
        """After how many failures in a row a task is handed out no more."""
        return _whole(self.tables, "tasks", "park_after", "a number of failures", "3") or 3

    @property
    def default_model(self) -> str | None:
        return _word(table(self.tables, "models").get("default"))

    @property
    def fallback_models(self) -> tuple[str, ...]:
        """The models to ask in turn when an agent's own cannot answer."""
        return _words("models.fallback", table(self.tables, "models").get("fallback", []))

    @property
    def calls_per_minute(self) -> int | None:
        """How often this process may ask one model in a minute; None is no limit."""
        return _whole(self.tables, "models", "per_minute", "a number of calls", "20")

    @property
    def embedder(self) -> str:
        """What makes vectors of texts; empty for the best that is installed."""
        value = table(self.tables, "memory").get("embedder", "")
        if isinstance(value, str):
            return value
        raise _wrong("memory.embedder", value, "the name of an embedder", '"minilm"')

    @property
    def recency(self) -> tuple[float, float]:
        """How age counts in a search: decay for each day, and the bonus of new texts."""
        found = table(self.tables, "memory")
        values = {name: found.get(name, 0.0) for name in ("decay", "fresh")}
        for name, value in values.items():
            if type(value) not in (int, float) or not 0 <= value < 1000:
                raise _wrong(f"memory.{name}", value, "a number from 0", "0.01")
        return float(values["decay"]), float(values["fresh"])

    def model(self, agent: str) -> str | None:
        """The model of one agent; without it, its persona's or the default applies."""
        return _word(table(self.tables, "agents", agent).get("model"))

    def measure(self, agent: str) -> Table:
        """Metrics of an agent, and the patterns of the files that are counted for them."""
        return table(self.tables, "agents", agent, "measure")

    def budget(self, agent: str = "") -> Budget:
        """The limits of an agent: its own, else those of all agents."""
        every = table(self.tables, "budget")
        own: Table = table(self.tables, "agents", agent) if agent else {}
        # Ignored, a misspelt limit would be one that does not hold.
        _refuse("budget", every.keys() - _KNOWN["budget"].keys(), _KNOWN["budget"])
        # Much else may stand under an agent; what looks like a limit has to be one.
        unread = _unread(own, _KNOWN["agents"]["*"])
        _refuse(f"agents.{agent}", [name for name, near in unread if near in _OF_ONE], _OF_ONE)
        session, day = amount(own, "session_usd"), amount(own, "day_usd")
        return Budget(
            amount(every, "session_usd") if session is None else session,
            amount(every, "agent_day_usd") if day is None else day,
            amount(every, "fleet_day_usd"),
        )

    def unread(self) -> Iterator[tuple[str, str]]:
        """Settings that nothing reads, by their full names, and what may have been meant."""
        return _unread(self.tables, _KNOWN)


def parse_settings(data: bytes) -> Settings:
    """The settings in the text of holdfast.toml."""
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise _error(f" cannot be read: {error}", "mend it with an editor") from None
    made_by = found.get("format")
    if type(made_by) is not int:
        raise _error(" has no format number", "add `format = 1`")
    if made_by > FORMAT:
        raise NewerFormat(
            f"this home has format {_shown(made_by)}, this Holdfast knows {FORMAT}",
            hint="upgrade Holdfast; nothing was touched",
            path=SETTINGS,
        )
    standard = Settings()
    named = found.get("timezone", standard.timezone)
    timezone = named if isinstance(named, str) else _shown(named)
    try:
        zone(timezone)
    except ConfigError as error:
        raise _error(f": {error}", error.hint) from None
    return Settings(
        made_by,
        timezone,
        _seconds(found, "heartbeat", standard.heartbeat),
        _seconds(found, "offline_after", standard.offline_after),
        _words("ledger.extra_events", table(found, "ledger").get("extra_events", [])),
        _bytes(table(found, "log").get("rotate_at", standard.rotate_at)),
        found,
    )


def table(found: Table, *names: str) -> Table:
    """A table in a table, such as `[agents.rio]`; empty if there is none."""
    for depth, name in enumerate(names, 1):
        found = found.get(name, {})
        if not isinstance(found, dict):
            path = ".".join(names[:depth])
            raise _error(f": {path} is not a table", f"begin it by [{path}]")
    return found


def amount(found: Table, name: str) -> float | None:
    """A sum of money in USD; None where the file names none."""
    value = found.get(name)
    if value is None:
        return None
    if type(value) in (int, float) and 0 <= value < _MOST_USD:
        return float(value)
    raise _wrong(name, value, "a sum of money in USD", "2.5")


def _seconds(found: Table, name: str, standard: float, above: str = "") -> float:
    value: object = found.get(name, standard)
    seconds = 0.0
    try:
        if isinstance(value, str):
            seconds = duration(value)
        elif type(value) in (int, float):
            seconds = float(cast("float", value))
    except (UsageError, OverflowError):
        pass
    if 0 < seconds < _LONGEST:
        return seconds
    raise _wrong(above + name, value, "a duration", '"300s" or "5m"')


def _whole(found: Table, above: str, name: str, wanted: str, like: str) -> int | None:
    """A number from 1; None where the file names none."""
    value = table(found, above).get(name)
    if value is None or (type(value) is int and value >= 1):
        return value
    raise _wrong(f"{above}.{name}", value, wanted, like)


def _bytes(value: object) -> int:
    try:
        count = size(value) if isinstance(value, str) else value
    except UsageError:
        count = 0
    if type(count) is int and 0 < count <= _LARGEST:
        return count
    raise _wrong("log.rotate_at", value, "a size up to 1 TiB", '"100MB"')


def _words(name: str, value: object) -> tuple[str, ...]:
    words = tuple(cast("list[object]", value)) if isinstance(value, list) else (None,)
    if all(isinstance(word, str) for word in words):
        return cast("tuple[str, ...]", words)
    raise _wrong(name, cast("object", value), "a list of words", '["one", "two"]')


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _wrong(name: str, value: object, wanted: str, like: str) -> ConfigError:
    hint = f"write it as {name.rpartition('.')[2]} = {like}"
    return _error(f": {name} = {_shown(value)} is not {wanted}", hint)


def _error(what: str, hint: str | None) -> ConfigError:
    return ConfigError(f"{SETTINGS}{what}", hint=hint, path=SETTINGS)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:
        return "an endless number"  # Python refuses to write thousands of digits


def _refuse(name: str, wrong: Iterable[str], known: Iterable[str]) -> None:
    for slip in sorted(wrong)[:1]:
        hint = f"there are {', '.join(known)}; see docs/budgets.md"
        raise _error(f": [{name}] has no {slip}", hint)


def _unread(found: Table, known: Table, above: str = "") -> Iterator[tuple[str, str]]:
    from difflib import get_close_matches  # noqa: PLC0415 - hot verbs have settings too

    for name, value in found.items():
        read = known.get(name, known.get("*"))
        if read is None:
            near = get_close_matches(name, known, 1)
            yield above + name, above + near[0] if near else ""
        elif isinstance(read, dict) and isinstance(value, dict):
            yield from _unread(cast("Table", value), cast("Table", read), f"{above}{name}.")
