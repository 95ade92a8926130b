"""The words of the journal that mean something to us, which is why nobody else may write them.

What is told of sessions, tasks and money is made of these lines: one that an agent made up would
retire it, give a number twice or pay for what nobody did.  Pure.
"""

from __future__ import annotations

OF_SESSIONS = frozenset(
    {"session_start", "session_set", "session_end", "error", "count", "lease", "joined", "tool_use"}
)
OF_AGENTS = frozenset({"import", "retired", "reinstated", "forked", "persona_changed"})
OF_TASKS = frozenset(
    {
        "task_added",
        "task_started",
        "task_completed",
        "task_dropped",
        "task_reopened",
        "task_parked",
    }
)
OF_DOCUMENTS = frozenset({"noted", "text_imported", "edited_by_hand"})
OWN_EVENTS = OF_SESSIONS | OF_AGENTS | OF_TASKS | OF_DOCUMENTS
SOURCES = "sources_archived"
"""The one word of everybody's that is added up."""
