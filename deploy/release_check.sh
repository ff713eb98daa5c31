#!/bin/sh
# Builds the commit once more, from a clone in another directory, and compares every file. Usage: release_check.sh
# ARTIFACTS, with what `make release` has built of the same commit. PROFILE as there.
set -eu
artifacts=$(cd "$1" && pwd -P)
source=$(cd "$(dirname "$0")/.." && pwd -P)
if [ -n "$(git -C "$source" status --porcelain)" ]; then
    echo "release-check: commit your changes first: a clone has only what is committed" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "$source" "$work/a-longer-path/source"
# The tools are the same, and are not built again.
mkdir "$work/a-longer-path/source/target"
ln -s "$source/target/tools" "$work/a-longer-path/source/target/tools"
sh "$work/a-longer-path/source/deploy/release.sh" "$work/artifacts" >/dev/null
if ! diff "$artifacts/SHA256SUMS" "$work/artifacts/SHA256SUMS"; then
    echo "release-check: the builds differ" >&2
    exit 1
fi
echo "release-check: the same bytes in two directories"
