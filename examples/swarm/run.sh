#!/bin/sh
# A swarm of four agents, from ready-made personas to a picture of what they did.
#
#   sh run.sh DIR                          with scripted replies: no model, no network
#   MODEL=embedded:smollm2 sh run.sh DIR   a small model on this machine (extra `embedded`)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?where to put the picture}
mkdir -p "$out"

holdfast init
for each in ada:researcher ben:critic cleo:planner dia:summariser; do
    holdfast agent new "${each%%:*}" --persona "${each##*:}"
done
holdfast swarm run --file "$here/swarm.yaml" --name cache --model "${MODEL:-scripted:$here/replies.yaml}"
holdfast swarm analyze cache
holdfast swarm plot cache --out "$out/cache.svg"
holdfast swarm test --agent ada --iterations 7 --model scripted:echo
