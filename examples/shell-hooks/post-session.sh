#!/bin/sh
# After a session that went well: end it.
#   AGENT=rio SOURCES=8 SUMMARY="Eight sources" HANDOFF="Three are left" sh post-session.sh
set -eu
set -- --agent "$AGENT" --outcome completed
[ -z "${SOURCES:-}" ] || set -- "$@" --sources "$SOURCES"
[ -z "${SUMMARY:-}" ] || set -- "$@" --summary "$SUMMARY"
[ -z "${HANDOFF:-}" ] || set -- "$@" --handoff "$HANDOFF"
exec holdfast session end "$@"
