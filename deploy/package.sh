#!/bin/sh
# Lays out the files of a release around the built programs: man pages, completions, units, configurations, and from
# them the archive and the Debian package. Usage: package.sh PROGRAMS OUT, with the directory of the programs and
# one for the results.
#
# The same programs give the same bytes: times are SOURCE_DATE_EPOCH, names are sorted, and owners are root.
set -eu
programs=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
: "${SOURCE_DATE_EPOCH:?must be set to the time of the release, as \`make release\` does}"
export SOURCE_DATE_EPOCH
umask 022

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name="keygate-$version-$(uname -m)-linux"
# cargo-deb reads the files of the package from here.
tree=target/package
rm -rf "$tree"
mkdir -p "$tree/bin" "$tree/man" "$tree/completions" "$tree/systemd" "$tree/config"

cp "$programs/keygate" "$programs/query-store" "$tree/bin/"
for program in keygate query-store; do
    # Only PROFILE=dev has line tables; names of functions stay, for backtraces.
    strip --strip-debug "$tree/bin/$program"
    "$tree/bin/$program" man "$tree/man"
    for shell in bash zsh fish; do
        "$tree/bin/$program" completions "$shell" > "$tree/completions/$program.$shell"
    done
done
gzip -9n "$tree"/man/*.1

# The package installs programs into /usr/bin, and makes a user that outlives restarts, to whom its
# configuration belongs.
for unit in keygate query-store; do
    sed -e 's,/usr/local/bin/,/usr/bin/,g' "deploy/$unit.service" > "$tree/systemd/$unit.service"
done
sed -i -e '1,/^\[Unit\]/{/^#/d}' -e 's/^DynamicUser=yes$/User=keygate\nGroup=keygate/' "$tree/systemd/keygate.service"
cp deploy/systemd/keygate.socket "$tree/systemd/"
sed -i -e '1,/^\[Unit\]/{/^#/d}' "$tree/systemd/query-store.service" "$tree/systemd/keygate.socket"
cp deploy/systemd/keygate.yaml deploy/systemd/query-store.yaml "$tree/config/"

archive() {
    root="$tree/archive/$name"
    mkdir -p "$root"
    cp -R "$tree/bin" "$tree/man" "$tree/completions" "$tree/systemd" "$tree/config" "$root/"
    cp LICENSE README.md CHANGELOG.md config/keygate.yaml "$root/"
    cp -R docs deploy/prometheus deploy/grafana "$root/"
    tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode='u+rw,go+r-w' --directory "$tree/archive" "$name" | gzip -9n > "$out/$name.tar.gz"
    rm -rf "$tree/archive"
}

# The chart as `helm install` takes it: its alerts are a link to the file that is shipped beside it.
chart() {
    tar --create --dereference --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
        --numeric-owner --mode='u+rw,go+r-w' --directory deploy/helm keygate |
        gzip -9n > "$out/keygate-chart-$version.tgz"
}

debian() {
    cargo deb --no-build --no-strip --quiet --compress-system --output "$out/"
}

archive
chart
if [ "${3:-}" != --no-deb ]; then
    debian
fi
