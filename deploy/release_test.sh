#!/bin/sh
# Tries a release as far as that goes without a container engine and without an init: the static program in an empty
# root, and the Debian package in a copy of this system that ends with the test. Usage: release_test.sh ARTIFACTS.
#
# Needs Linux with user namespaces; the package is tried by root on Debian only, and otherwise left out by name.
set -eu
artifacts=$(cd "$1" && pwd -P)
work=$(mktemp -d)
pid=""
finish() {
    # shellcheck disable=SC2086 # one word a process
    [ -z "$pid" ] || kill $pid 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT INT TERM

fail() { echo "release-test: $*" >&2; exit 1; }
step() { echo "release-test: $*"; }

(cd "$artifacts" && sha256sum --check --quiet SHA256SUMS) || fail "the checksums are not those of the files"
tar --extract --gzip --file "$artifacts"/keygate-*-linux.tar.gz --directory "$work" --strip-components 1

step "the programs are static"
for program in keygate query-store; do
    if LC_ALL=C file "$work/bin/$program" | grep -q 'dynamically linked'; then fail "$program is not static"; fi
done

# The files of the image: see deploy/Dockerfile.
root="$work/root"
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/var/lib/keygate" "$root/var/lib/query-store"
cp "$work/bin/keygate" "$work/bin/query-store" "$root/usr/local/bin/"
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
# A container engine adds these two, here with a name server that does not answer: the hosts file is enough. And the
# devices: in a static program of this C library, random numbers come from /dev/urandom.
mkdir "$root/dev"
printf '127.0.0.1 localhost\n127.0.0.1 query-store\n' > "$root/etc/hosts"
echo "nameserver 127.0.0.1" > "$root/etc/resolv.conf"
port() { awk 'BEGIN { srand('"$$$1"'); print 20000 + int(rand() * 10000) }'; }
api=$(port 1) admin=$(port 2) store=$(port 3)
sed -e "s/0.0.0.0:8080/127.0.0.1:$api/" -e "s/0.0.0.0:9464/127.0.0.1:$admin/" \
    -e "s/query-store:8081/query-store:$store/" \
    deploy/container/keygate.yaml > "$root/etc/keygate.yaml"
sed -e "s/0.0.0.0:8081/127.0.0.1:$store/" deploy/container/query-store.yaml > "$root/etc/query-store.yaml"

# The user of the image where this is run by root, else the only one that a user namespace has.
if [ "$(id -u)" -eq 0 ]; then
    chown -R 10001:10001 "$root/var/lib/keygate" "$root/var/lib/query-store"
    # The directory above is for its owner only.
    chmod 0711 "$work"
    mknod -m 0666 "$root/dev/urandom" c 1 9
    mknod -m 0666 "$root/dev/random" c 1 8
    mknod -m 0666 "$root/dev/null" c 1 3
    inside="chroot --userspec=10001:10001 $root"
else
    # shellcheck disable=SC2016 # expanded by the inner shell
    printf '%s\n' 'mount --rbind /dev "$1/dev"' 'root=$1' 'shift' 'exec chroot "$root" "$@"' > "$work/enter"
    inside="unshare --user --map-root-user --mount sh -eu $work/enter $root"
fi
# shellcheck disable=SC2086 # the words of the command
keygate() { $inside /usr/local/bin/keygate "$@" --config /etc/keygate.yaml; }

step "both programs serve in an empty root"
# shellcheck disable=SC2086 # the words of the command
$inside /usr/local/bin/query-store serve --config /etc/query-store.yaml 2> "$work/query-store.log" &
pid=$!
# shellcheck disable=SC2086 # the words of the command
$inside /usr/local/bin/keygate serve --config /etc/keygate.yaml 2> "$work/keygate.log" &
gateway=$!
pid="$pid $gateway"
tries=0
until keygate health >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$work/keygate.log" >&2; fail "keygate is not ready in an empty root"; }
    sleep 0.1
done
keygate org create acme >/dev/null
keygate user create --org acme ada@example.com --permission queries:read >/dev/null
key=$(keygate key create --org acme --user ada@example.com laptop 2>/dev/null)

step "the name of the upstream is resolved, and a request passes"
tries=0
until status=$(curl -s -o "$work/answer" -w '%{http_code}' -H "Authorization: Bearer $key" \
    "http://127.0.0.1:$api/api/queries") \
    && [ "$status" = 200 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$work/keygate.log" >&2; fail "a request is answered with $status"; }
    sleep 0.1
done
grep -q '"items"' "$work/answer" || fail "the answer is not the list"
keygate audit list | grep -q laptop || keygate audit list --json | grep -q queries.list ||
    fail "the use is not recorded"
kill -TERM "$gateway"
wait "$gateway" || fail "keygate ended with $?"

package=$(ls "$artifacts"/*.deb 2>/dev/null || true)
if [ -z "$package" ]; then
    step "no Debian package to try"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v dpkg >/dev/null; then
    step "the Debian package is not tried: that needs root on Debian"
    exit 0
fi
# A copy of this system: what is written there is in memory, in a mount namespace of its own, and gone with it.
step "the Debian package is installed, upgraded, removed and purged"
mkdir "$work/copy"
unshare --mount --pid --fork --kill-child sh -eu deploy/debian/test.sh "$work/copy" "$package"
step "done"
