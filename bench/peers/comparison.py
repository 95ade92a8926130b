"""The peers, their trials, and the bars."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.frame import Absent, Bar, Outcome, Setup, rounded, significant
from bench.peers import environment, trials
from bench.peers.race import Kept, race, resume
from bench.peers.talk import Peer, Task
from bench.peers.trials import Kills, Syncs

STEPS, QUICK_STEPS = 5_000, 200
KILLS, QUICK_KILLS = 12, 2

OURS = Peer(
    "Holdfast log", "holdfast_log", "append", "one `append` for each step, to one log in a home"
)
PLAIN = Peer(
    "SQLite",
    "plain_sqlite",
    "full",
    "one row for each step, a commit for each row, `journal_mode=WAL`, `synchronous=FULL`",
)
SESSION = Peer(
    "OpenAI Agents `SQLiteSession`",
    "openai_session",
    "default",
    "one `add_items` with one item for each step, as it comes (it sets WAL itself)",
)
DBOS = Peer(
    "DBOS on SQLite",
    "dbos_workflow",
    "default",
    "one workflow, one `@DBOS.step` for each message, database as DBOS makes it (rollback journal)",
)
DBOS_WAL = Peer(
    "DBOS on SQLite set to WAL",
    "dbos_workflow",
    "wal",
    "the same, on a file that was set to `journal_mode=WAL` by hand before",
)
GRAPH_SYNC = Peer(
    "LangGraph `SqliteSaver`, sync",
    "langgraph_saver",
    "sync-messages",
    '`MessagesState`, one node in a loop, one `invoke`, `durability="sync"`',
)
GRAPH = Peer(
    "LangGraph `SqliteSaver`, default",
    "langgraph_saver",
    "async-messages",
    'the same with its default, `durability="async"`: a checkpoint is kept while the next step '
    "runs; the time includes what is still under way at the end",
)
GRAPH_LIST = Peer(
    "LangGraph `SqliteSaver`, sync, plain dicts",
    "langgraph_saver",
    "sync-list",
    "the leanest channel: dicts joined by `operator.add`, no message objects",
)
GRAPH_DELTA = Peer(
    "LangGraph `SqliteSaver`, sync, `DeltaChannel`",
    "langgraph_saver",
    "sync-delta",
    "message objects in a `DeltaChannel` (a beta) as it comes: what a step added is kept with "
    "the step, the whole list at every hundredth",
)
PEERS = [OURS, PLAIN, SESSION, DBOS, DBOS_WAL, GRAPH_SYNC, GRAPH, GRAPH_LIST, GRAPH_DELTA]
CONTROL = Peer("control", "plain_sqlite", "lazy", "acknowledges each step, commits none")


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    if reason := environment.build():
        outcome.absent.append(Absent("the same steps kept by the peers", reason))
        return outcome
    task = Task(setup.seed, int(setup.pick(STEPS, QUICK_STEPS)))
    seen = traced(setup)
    died = killed(setup)
    kept = race(setup, PEERS, task)
    resume(setup, kept, task)
    outcome.numbers = {
        "steps": task.steps,
        "versions": environment.versions(),
        "control_lost": died[CONTROL].lost,
        "peers": {peer.name: numbers(peer, kept, seen[peer], died[peer]) for peer in PEERS},
    }
    judge_word(outcome, seen[OURS], died[OURS])
    judge_race(setup, outcome, kept, task)
    return outcome


def traced(setup: Setup) -> dict[Peer, Syncs | str]:
    def one(peer: Peer) -> Syncs | str:
        return trials.syncs(peer, setup.scratch, setup.seed)

    # Nothing is timed here, so two at a time.
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PEERS, pool.map(one, PEERS), strict=True))


def killed(setup: Setup) -> dict[Peer, Kills]:
    count = int(setup.pick(KILLS, QUICK_KILLS))

    def one(peer: Peer) -> Kills:
        place = setup.scratch / f"{peer.script}-{peer.form}.killed"
        return trials.kills(peer, place, setup.seed, count)

    everybody = [*PEERS, CONTROL]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(everybody, pool.map(one, everybody), strict=True))
    if not found[CONTROL].lost:
        raise AssertionError("a driver that acknowledges what it has not kept was not caught")
    return found


# --- bars -----------------------------------------------------------------------------------


def judge_word(outcome: Outcome, seen: Syncs | str, died: Kills) -> None:
    if isinstance(seen, str):
        outcome.absent.append(Absent("syncs per step under strace", seen))
    else:
        outcome.bars += [
            Bar("syncs per step under strace", seen.each, "==", 1),
            Bar("share of steps synced before they are acknowledged", seen.before_next, "==", 1),
        ]
    outcome.bars += [
        Bar(f"acknowledged steps lost in {died.kills} kills", died.lost, "==", 0),
        Bar(f"kills of {died.kills} after which the state is wrong", died.wrong, "==", 0),
    ]


def judge_race(setup: Setup, outcome: Outcome, kept: dict[Peer, Kept], task: Task) -> None:
    beside = tuple(kept[PLAIN].fifths())
    at = f"{task.steps:,} steps"
    for peer, least in ((GRAPH_SYNC, 10), (GRAPH_LIST, 10), (DBOS, 3)):
        ratio = kept[OURS].total.rate / kept[peer].total.rate
        what = f"{at}: durable steps per second, against {peer.name}"
        outcome.bars.append(Bar(what, ratio, ">=", least, "×", timed=True, beside=beside))
    if not setup.quick:  # what LangGraph writes grows with the square of the steps
        smaller = per_step(kept[GRAPH]) / per_step(kept[OURS])
        what = f"{at}: bytes on disk, {GRAPH.name}, against ours"
        outcome.bars.append(Bar(what, smaller, ">=", 100, "×"))
    outcome.bars.append(
        Bar(
            f"{at}: resume, whole state read, after imports",
            kept[OURS].resume_ms(),
            "<",
            50,
            "ms",
            timed=True,
            alone=True,
            beside=tuple(kept[PLAIN].resume),
        )
    )


def per_step(kept: Kept) -> float:
    return kept.bytes / kept.total.count


def numbers(peer: Peer, kept: dict[Peer, Kept], seen: Syncs | str, died: Kills) -> dict[str, Any]:
    own = kept[peer]
    return {
        "configuration": peer.about,
        "steps": own.total.count,
        "syncs": seen if isinstance(seen, str) else seen._asdict(),
        "kills": died._asdict(),
        "bytes": own.bytes,
        "bytes_per_step": significant(per_step(own)),
        "cpu_us": significant(own.total.cpu_each),
        "rate": significant(own.total.rate),
        "rate_of_last_turn": significant(own.turns[-1].rate),
        "ours_to_it": significant(kept[OURS].total.rate / own.total.rate),
        "resume_ms": significant(own.resume_ms()),
        "process_ms": significant(own.process_ms()),
        "all_resumes_ms": rounded([each * 1e3 for each in own.resume]),
        "rates": rounded([each.rate for each in own.turns]),
    }
