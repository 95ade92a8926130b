"""What the harnesses may hold against the store: the order of what was said, and no more."""

from __future__ import annotations

from prove.actors import ACK, KINDS
from prove.oracle import SHARED, Entry, History, Observation, broken

SHARED_LINE = KINDS.index("shared")


def complaints(begun: float, ended: float) -> list[str]:
    """Of a batch of three, written first and acknowledged late, the last was never told."""
    history = History()
    batch, other = history.born(1, 1), history.born(2, 1)
    history.take(other, ACK.pack(SHARED_LINE, 1, 9, 3.0, 4.0))
    for attempt, line in ((1, 5), (2, 6)):
        history.take(batch, ACK.pack(SHARED_LINE, attempt, line, begun, ended))
    last = history.in_flight("1.1.3")
    assert last is not None
    writes = [*history.writes[SHARED], last._replace(stream=SHARED)]
    names = {"1.1.1": 5, "1.1.2": 6, "1.1.3": 7, "2.1.1": 9}
    entries = [Entry(name, line) for name, line in names.items()]
    seen = Observation(writes=writes, streams={SHARED: entries})
    return [each.says for each in broken(seen) if each.property == "P4"]


def test_the_rest_of_a_batch_is_as_old_as_its_first_line() -> None:
    assert complaints(begun=1.0, ended=5.0) == []


def test_what_began_after_an_acknowledgement_has_to_stand_behind_it() -> None:
    assert any("1.1.3 began after 2.1.1" in says for says in complaints(begun=4.5, ended=5.0))
