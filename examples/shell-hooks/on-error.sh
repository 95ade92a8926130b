#!/bin/sh
# After a session that failed: end it, with what went wrong. timeout(1) ends a command with 124.
#   AGENT=rio CODE=$? MESSAGE="$(tail -n 1 session.log)" sh on-error.sh
set -eu
outcome=error
[ "${CODE:-1}" != 124 ] || outcome=timeout
exec holdfast session end --agent "$AGENT" --outcome "$outcome" \
    --error "${MESSAGE:-exit code ${CODE:-unknown}}"
