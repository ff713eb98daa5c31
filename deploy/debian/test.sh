#!/bin/sh
# Tries the Debian package in a copy of this system. Usage: test.sh DIRECTORY PACKAGE, in a mount namespace of its own,
# by root: `release_test.sh` does so. There is no init, so that the units are not started by systemd but by hand.
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
# Ports that are free, whatever else runs here.
sed -i -e 's/0.0.0.0:8080/127.0.0.1:0/' -e 's,^  socket: .*,&\n  address: 127.0.0.1:0,' "$root/etc/keygate/keygate.yaml"
# shellcheck disable=SC2086 # the words of the command
chroot --userspec=keygate:keygate "$root" $command 2> "$root/run/log" &
gateway=$!
tries=0
until [ -S "$root/var/lib/keygate/admin.sock" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$root/run/log" >&2; fail "the gateway does not start"; }
    sleep 0.1
done
as_keygate keygate org create acme --config /etc/keygate/keygate.yaml >/dev/null
kill -TERM "$gateway"
wait "$gateway" || fail "the gateway ended with $?"

# Upgraded: the version is another one, a changed configuration is kept, and so are the data and the modes.
inside dpkg-deb --raw-extract /run/keygate.deb /run/next
sed -i -e 's/^Version: .*/Version: 999.0.0/' "$root/run/next/DEBIAN/control"
echo '# of the next version' >> "$root/run/next/etc/keygate/keygate.yaml"
inside chmod 0660 /etc/keygate/keygate.yaml
inside dpkg-deb -Znone --root-owner-group --build /run/next /run/next.deb >/dev/null
before=$(sha256sum < "$root/etc/keygate/keygate.yaml")
inside dpkg --force-confold --install /run/next.deb >/dev/null
[ "$(inside dpkg-query --show --showformat='${Version}' keygate)" = 999.0.0 ] || fail "it is not upgraded"
[ "$(sha256sum < "$root/etc/keygate/keygate.yaml")" = "$before" ] || fail "the changed configuration is not kept"
[ -e "$root/etc/keygate/keygate.yaml.dpkg-dist" ] || fail "the new configuration is not beside it"
[ "$(mode /etc/keygate/keygate.yaml)" = "root:keygate 660" ] || fail "keygate.yaml: $(mode /etc/keygate/keygate.yaml)"
as_keygate keygate org list --config /etc/keygate/keygate.yaml | grep -q acme || fail "the state is not kept"

# Removed: programs go, configuration and data stay. Purged: the configuration goes, and the data stays, by its name.
inside dpkg --remove keygate >/dev/null
[ ! -e "$root/usr/bin/keygate" ] || fail "the program is left"
[ -e "$root/etc/keygate/keygate.yaml" ] || fail "the configuration is gone"
inside dpkg --purge keygate > "$root/run/purged"
[ ! -e "$root/etc/keygate/keygate.yaml" ] || fail "the configuration is left"
[ -e "$root/var/lib/keygate/audit" ] || fail "the journal is gone"
grep -q "stay in /var/lib/keygate" "$root/run/purged" || fail "nothing says that the data stays"
