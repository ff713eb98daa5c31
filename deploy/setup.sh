#!/bin/sh
# Installs what the build and the tests need and this machine lacks: on Debian by its packages, elsewhere it says what.
set -eu

missing=""
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

need cc gcc
need curl curl
need prlimit util-linux
need redis-server redis-server
need node nodejs
need npm npm
need chromium chromium
need chromedriver chromium-driver
# Debian has what makes virtual environments in a package of its own.
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: please install:$missing (a C compiler builds the embedded SQLite; curl tries the demo, prlimit fills a disk, redis-server holds shared state, node runs the identity provider, chromium looks at the pages, python3-venv tries the management API)" >&2
        exit 1
    fi
    sudo=""
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || { echo "setup: as root, run: apt-get install$missing" >&2; exit 1; }
        sudo="sudo"
    fi
    $sudo apt-get update -qq
    # Tests start servers of their own: a run level without services keeps the installed one from starting (where systemd
    # rules, a policy-rc.d is needed instead).
    # shellcheck disable=SC2086 # one word a package
    $sudo env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing libc6-dev
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "setup: please install Rust 1.95 or newer, with rustfmt and clippy, from https://rustup.rs" >&2
    exit 1
fi

# The identity provider of the tests. npm writes a lock file of its own into what it installs.
provider="$(dirname "$0")/../tests/oidc-provider"
installed="$provider/node_modules/.package-lock.json"
if [ ! -e "$installed" ] || [ "$provider/package-lock.json" -nt "$installed" ]; then
    (cd "$provider" && npm ci --no-audit --no-fund --loglevel=error)
fi
# It runs on Node.js 20 or newer. Where the system's is older, as on Debian 12, npm has one for it alone.
if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ] && [ ! -x "$provider/node_modules/node/bin/node" ]; then
    (cd "$provider" && npm install --no-save --no-audit --no-fund --loglevel=error node@22)
fi

# What the management API is tried with, in a directory of its own, made anew when another version is wanted. The stamp is
# written last: what broke off in the middle is not taken for whole.
wanted="$(dirname "$0")/../tests/schemathesis/requirements.txt"
tools="$(dirname "$0")/../target/schemathesis"
if ! cmp -s "$wanted" "$tools/installed.txt"; then
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$wanted"
    cp "$wanted" "$tools/installed.txt"
fi
