#!/bin/sh
# A job that mends a failing test, from a fresh repository to a branch in it.
#
#   sh run.sh DIR                                  with a scripted worker: no model, no network
#   SPEC=job-comment.yaml SUPERVISOR=embedded:smollm2 sh run.sh DIR
#                                                  a small model on this machine comments on it
#   WORKER='command:claude -p --permission-mode acceptEdits' sh run.sh DIR
#   WORKER='command:codex exec --sandbox workspace-write' sh run.sh DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=${1:?where to put the repository that is worked on}

mkdir -p "$repository"
cp "$here"/repository/*.py "$repository"
git -C "$repository" init -q -b main
git -C "$repository" add .
git -C "$repository" -c user.name=you -c user.email=you@example.org commit -q -m "A tally"

holdfast job new "$here/${SPEC:-job.yaml}" --id fix-test --source "$repository" --isolation worktree --tolerant \
    --worker "${WORKER:-command:python3 '$here/worker.py'}" \
    --supervisor "${SUPERVISOR:-command:python3 '$here/supervisor.py'}"
holdfast job run fix-test
holdfast job history fix-test
holdfast job diff fix-test --patch
holdfast job merge fix-test
