#!/bin/sh
# Tries the Debian package in a copy of this system. Usage: test.sh DIRECTORY PACKAGE, in a mount namespace of its own,
# by root: `release_test.sh` does so. There is no init: the units are started by hand, and the scripts of the package
# find a systemctl that only notes what it is asked for.
set -eu
directory=$1
package=$2
mount --make-rprivate /
mount -t tmpfs tmpfs "$directory"
mkdir "$directory/upper" "$directory/work" "$directory/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$directory/upper,workdir=$directory/work" "$directory/root"
root="$directory/root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
# No systemd there, whatever this system runs: the scripts must not reach it.
mount -t tmpfs tmpfs "$root/run"
cp "$package" "$root/run/keygate.deb"

fail() { echo "debian: $*" >&2; exit 1; }
inside() { chroot "$root" "$@"; }
as_keygate() { chroot --userspec=keygate:keygate "$root" "$@"; }
mode() { inside stat -c '%U:%G %a' "$1"; }

# Installed.
inside dpkg --install /run/keygate.deb >/dev/null
[ "$(inside dpkg-query --show --showformat='${Status}' keygate)" = "install ok installed" ] ||
    fail "it is not installed"
[ "$(mode /etc/keygate/keygate.yaml)" = "root:keygate 640" ] || fail "keygate.yaml: $(mode /etc/keygate/keygate.yaml)"
for file in lib/systemd/system/keygate.socket share/keygate/prometheus/alerts.yaml \
    share/keygate/grafana/keygate.json; do
    [ -e "$root/usr/$file" ] || fail "no /usr/$file"
done
[ "$(mode /var/lib/keygate)" = "keygate:keygate 700" ] || fail "/var/lib/keygate: $(mode /var/lib/keygate)"
for page in keygate keygate-key-create query-store-serve; do
    [ -e "$root/usr/share/man/man1/$page.1.gz" ] || fail "no man page $page"
done
inside bash -n /usr/share/bash-completion/completions/keygate
as_keygate keygate check --config /etc/keygate/keygate.yaml >/dev/null
if command -v systemd-analyze >/dev/null; then
    inside systemd-analyze verify --man=no /usr/lib/systemd/system/keygate.service || fail "the unit is not valid"
fi

# Started, as the unit does it: the same user, the same command.
command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/keygate.service")
[ "$command" = "/usr/bin/keygate serve --config /etc/keygate/keygate.yaml" ] || fail "the unit runs $command"
# Ports that are likely free, whatever else runs here. The load needs more tokens than a key has by default.
api=$(awk 'BEGIN { srand('"$$"'); print 20000 + int(rand() * 10000) }')
store=$((api + 1)) admin=$((api + 2))
sed -i -e "s/0.0.0.0:8080/127.0.0.1:$api/" -e "s/127.0.0.1:8081/127.0.0.1:$store/" \
    -e "s/^admin:/&\n  address: 127.0.0.1:$admin/" "$root/etc/keygate/keygate.yaml"
echo "limits: { key: { requests: 1000000, per: 1h } }" >> "$root/etc/keygate/keygate.yaml"
sed -i -e "s/127.0.0.1:8081/127.0.0.1:$store/" "$root/etc/keygate/query-store.yaml"
inside install -d -o keygate -g keygate /var/lib/query-store
as_keygate query-store serve --config /etc/keygate/query-store.yaml 2> "$root/run/store" &
# shellcheck disable=SC2086 # the words of the command
chroot --userspec=keygate:keygate "$root" $command 2> "$root/run/log" &
gateway=$!
wait_for() {
    tries=0
    until eval "$1"; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || { cat "$root/run/log" >&2; fail "waited in vain: $1"; }
        sleep 0.1
    done
}
wait_for '[ -S "$root/var/lib/keygate/admin.sock" ]'
managed() { as_keygate keygate "$@" --config /etc/keygate/keygate.yaml; }
managed org create acme >/dev/null
managed user create --org acme ada@example.com --permission queries:read >/dev/null
key=$(managed key create --org acme --user ada@example.com laptop 2>/dev/null)
url="http://127.0.0.1:$api/api/queries"
wait_for '[ "$(curl -s -o /dev/null -w "%{http_code}" -H "Authorization: Bearer $key" "$url")" = 200 ]'

# Upgraded under load: no request fails, the version is another one, and a changed configuration, the data and the modes
# are kept.
inside dpkg-deb --raw-extract /run/keygate.deb /run/next
sed -i -e 's/^Version: .*/Version: 999.0.0/' "$root/run/next/DEBIAN/control"
echo '# of the next version' >> "$root/run/next/etc/keygate/keygate.yaml"
inside chmod 0660 /etc/keygate/keygate.yaml
inside dpkg-deb -Znone --root-owner-group --build /run/next /run/next.deb >/dev/null
before=$(sha256sum < "$root/etc/keygate/keygate.yaml")
mkdir -p "$root/run/systemd/system"
printf '%s\n' '#!/bin/sh' 'echo "$@" >> /run/asked' > "$root/usr/local/bin/systemctl"
chmod 0755 "$root/usr/local/bin/systemctl"
requests=40000
# The fragment makes the requests many, and is not sent.
curl --silent --no-progress-meter --parallel --parallel-max 8 --output /dev/null --write-out '%{http_code}\n' \
    --header "Authorization: Bearer $key" "$url#[1-$requests]" > "$root/run/statuses" &
load=$!
wait_for '[ "$(wc -l < "$root/run/statuses")" -gt 1000 ]'
inside dpkg --force-confold --install /run/next.deb > "$root/run/upgraded" 2>&1 ||
    fail "dpkg: $(cat "$root/run/upgraded")"
kill -0 "$load" 2>/dev/null || fail "the load ended before the upgrade did"
wait "$gateway" || { cat "$root/run/log" >&2; fail "the gateway that was replaced ended with $?"; }
wait "$load" || fail "curl ended with $?"
[ "$(grep -c '^200$' "$root/run/statuses")" = "$requests" ] ||
    fail "requests failed: $(sort "$root/run/statuses" | uniq -c | tr '\n' ' ')"
! grep -q 'restart keygate.service' "$root/run/asked" || fail "the gateway was restarted: $(cat "$root/run/upgraded")"
echo "debian: upgraded by hand-over under load, $requests requests, 0 failed"
[ "$(inside dpkg-query --show --showformat='${Version}' keygate)" = 999.0.0 ] || fail "it is not upgraded"
[ "$(sha256sum < "$root/etc/keygate/keygate.yaml")" = "$before" ] || fail "the changed configuration is not kept"
[ -e "$root/etc/keygate/keygate.yaml.dpkg-dist" ] || fail "the new configuration is not beside it"
[ "$(mode /etc/keygate/keygate.yaml)" = "root:keygate 660" ] || fail "keygate.yaml: $(mode /etc/keygate/keygate.yaml)"
as_keygate keygate org list --config /etc/keygate/keygate.yaml | grep -q acme || fail "the state is not kept"

managed doctor --only gateway >/dev/null || [ $? -eq 1 ] || fail "the new gateway does not answer"
inside sh -c 'kill -TERM $(pidof keygate)'
wait_for '! inside pidof keygate >/dev/null'

# Removed: programs go, configuration and data stay. Purged: the configuration goes, and the data stays, by its name.
inside dpkg --remove keygate >/dev/null
[ ! -e "$root/usr/bin/keygate" ] || fail "the program is left"
[ -e "$root/etc/keygate/keygate.yaml" ] || fail "the configuration is gone"
inside dpkg --purge keygate > "$root/run/purged"
[ ! -e "$root/etc/keygate/keygate.yaml" ] || fail "the configuration is left"
[ -e "$root/var/lib/keygate/audit" ] || fail "the journal is gone"
grep -q "stay in /var/lib/keygate" "$root/run/purged" || fail "nothing says that the data stays"
