#!/bin/sh
# Builds a release: static programs with the list of their dependencies in them, the archive, the Debian package, the
# SBOM, and the checksums of all. Usage: release.sh [OUT]; PROFILE chooses the profile of the build.
#
# The same commit is to give the same bytes, in whatever directory it is built (`make release-check`): paths are mapped
# to fixed ones, and times are that of the commit. The tools are those that `setup.sh release` installs.
set -eu
cd "$(dirname "$0")/.."
source=$(pwd -P)
mkdir -p "${1:-target/artifacts}"
out=$(cd "${1:-target/artifacts}" && pwd -P)
profile=${PROFILE:-release}
host=$(rustc -vV | sed -n 's/^host: //p')
cargo_home=${CARGO_HOME:-$HOME/.cargo}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
PATH="$source/target/tools/bin:$PATH"

# Static, so that the programs run on every Linux of this architecture, and on an empty image. Host names are looked up
# by /etc/hosts and /etc/resolv.conf, without modules of the system.
remapped="--remap-path-prefix=$source=/keygate --remap-path-prefix=$cargo_home=/cargo"
export RUSTFLAGS="-C target-feature=+crt-static $remapped"
prefixes="-ffile-prefix-map=$source=/keygate -ffile-prefix-map=$cargo_home=/cargo"
export CFLAGS="$prefixes" CXXFLAGS="$prefixes"

# A target is named so that flags concern the programs alone, and not what runs at the build.
cargo auditable build --locked --profile "$profile" --target "$host" --target-dir target/static --bins
directory=$profile
[ "$profile" != dev ] || directory=debug
programs="target/static/$host/$directory"
for program in keygate query-store; do
    if ldd "$programs/$program" 2>/dev/null | grep -q '=>'; then
        echo "release: $program is not static" >&2
        exit 1
    fi
done

rm -f "$out"/*
sh deploy/package.sh "$programs" "$out"

# The SBOM is written beside Cargo.toml, and names this directory.
cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$host" --override-filename keygate.cdx
sed "s,$source,/keygate,g" keygate.cdx.json > "$out/keygate.cdx.json"
rm -f keygate.cdx.json

(cd "$out" && sha256sum -- * > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
cat "$out/SHA256SUMS"
echo "release: in $out; sign and tag them with: sh deploy/tag.sh VERSION"
