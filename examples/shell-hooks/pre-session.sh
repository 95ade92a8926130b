#!/bin/sh
# Before a session: begin it, and print what the agent should know.
#   AGENT=rio TYPE=research sh pre-session.sh > context.md
# Exit code 5: a session of this agent is under way; do not start another.
set -eu
holdfast session start --agent "$AGENT" --type "${TYPE:-ad-hoc}" --timeout "${TIMEOUT:-90m}" >&2
holdfast session context --agent "$AGENT"
