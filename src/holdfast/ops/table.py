"""THE table: every verb there is, in the order in which people should meet them.

Faces read it; nothing else decides what can be done.  A line here names its function by text,
so listing the table imports no verb.
"""

from __future__ import annotations

from holdfast.ops.operation import CLI_ONLY, Operation, Table

NOUNS = {
    "ledger": "What happened, in lines that cannot change unnoticed",
}

OPERATIONS = (
    Operation(
        name="init",
        summary="Make a home, and agents in it",
        function="holdfast.ops.home:init",
        effect="change",
        faces=CLI_ONLY,
        example="holdfast init rio clay",
    ),
    Operation(
        name="status",
        summary="Show who is busy, idle, failing or silent",
        function="holdfast.ops.home:status",
        effect="read",
        example="holdfast status",
        columns=("agent", "state", "age", "session_id", "last_task_id", "note"),
    ),
    Operation(
        name="check",
        summary="Prove that every file is what was written",
        function="holdfast.ops.home:check",
        effect="read",
        example="holdfast check --json",
        columns=("kind", "key", "detail", "repair"),
    ),
    Operation(
        name="doctor",
        summary="Examine the home and what it stands on, and say what to do",
        function="holdfast.ops.home:doctor",
        effect="change",
        faces=CLI_ONLY,
        example="holdfast doctor --fix",
        columns=("check", "state", "detail", "fix"),
    ),
    Operation(
        name="rebuild",
        summary="Make every view anew from its log",
        function="holdfast.ops.home:rebuild",
        effect="change",
        example="holdfast rebuild",
    ),
    Operation(
        name="path",
        summary="Print where something lies on disk",
        function="holdfast.ops.home:path",
        effect="read",
        faces=CLI_ONLY,
        example="holdfast path rio",
    ),
    Operation(
        name="validate",
        summary="Say what files are, and what is wrong with them",
        function="holdfast.ops.validate:validate",
        effect="read",
        faces=CLI_ONLY,
        example="holdfast validate ledger/ state/rio/status.json",
        columns=("file", "line", "level", "field", "reason", "times"),
    ),
    Operation(
        name="schema",
        summary="Show what a kind of file has to look like",
        function="holdfast.ops.schema:schema",
        effect="change",
        faces=CLI_ONLY,
        example="holdfast schema ledger",
        columns=("kind", "versions", "shape", "what"),
    ),
    Operation(
        name="import",
        summary="Bring a tree of another system into the home",
        function="holdfast.ops.importing:import_",
        effect="append",
        faces=CLI_ONLY,
        example="holdfast import /opt/agents/agent-state --dry-run",
        columns=("agent", "part", "file", "state", "entries", "detail"),
    ),
    Operation(
        name="ledger write",
        summary="Append one event of an agent",
        function="holdfast.ops.ledger:write",
        effect="append",
        example='holdfast ledger write --agent rio --event task_start --task wo-1 "Read the logs"',
    ),
    Operation(
        name="ledger list",
        summary="List events, oldest first",
        function="holdfast.ops.ledger:list_events",
        effect="read",
        example="holdfast ledger list --agent rio --event error --since 2026-11-01 --limit 20",
        columns=("seq", "ts", "agent", "event", "task_id", "summary"),
    ),
    Operation(
        name="ledger tail",
        summary="Show the newest events, and follow",
        function="holdfast.ops.ledger:tail",
        effect="read",
        faces=CLI_ONLY,
        example="holdfast ledger tail --agent rio --follow",
        columns=("seq", "ts", "agent", "event", "task_id", "summary"),
    ),
    Operation(
        name="ledger verify",
        summary="Find events that were edited, removed, added, reordered or cut off",
        function="holdfast.ops.ledger:verify",
        effect="read",
        example="holdfast ledger verify --agent rio",
        columns=("agent", "state", "where", "detail"),
    ),
    Operation(
        name="ledger merge",
        summary="Make one ledger of several files: every distinct entry once",
        function="holdfast.ops.ledger_mend:merge",
        effect="change",
        faces=CLI_ONLY,
        example="holdfast ledger merge 2026-11-15.jsonl copy/2026-11-15.jsonl --out merged.jsonl",
    ),
    Operation(
        name="ledger repair",
        summary="Save what can be read of damaged files into new ones",
        function="holdfast.ops.ledger_mend:repair",
        effect="change",
        faces=CLI_ONLY,
        example="holdfast ledger repair 2026-11-15.jsonl",
        columns=("file", "state", "entries", "mended", "rejects", "out"),
    ),
    Operation(
        name="ledger archive",
        summary="Pack the files of past days; every event is still found",
        function="holdfast.ops.ledger:archive",
        effect="change",
        example="holdfast ledger archive --older-than 30d",
        columns=("agent", "file", "state", "bytes", "packed_bytes"),
    ),
)

TABLE = Table(OPERATIONS, NOUNS)
