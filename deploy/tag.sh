#!/bin/sh
# Tags a release and signs it, by the key of the person who runs it. Usage: tag.sh VERSION [ARTIFACTS], after
# `make release` and `make release-test`. Pushes nothing, and says what to push.
set -eu
cd "$(dirname "$0")/.."
version=${1:?usage: tag.sh VERSION [ARTIFACTS]}
artifacts=${2:-target/artifacts}
fail() { echo "tag: $*" >&2; exit 1; }

own=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ "$own" = "$version" ] || fail "Cargo.toml has another version, $own"
grep -q "^appVersion: \"$version\"\$" deploy/helm/keygate/Chart.yaml || fail "the chart has another version"
grep -Eq "^## $version - [0-9]{4}-[0-9]{2}-[0-9]{2}\$" CHANGELOG.md || fail "CHANGELOG.md has no '## $version - DATE'"
[ -z "$(git status --porcelain --untracked-files=no)" ] || fail "commit your changes first"
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || fail "there is a tag v$version already"
ls "$artifacts"/*"$version"* >/dev/null 2>&1 || fail "$artifacts has no files of $version; run \`make release\`"
(cd "$artifacts" && sha256sum --check --quiet SHA256SUMS) || fail "the files are not those of SHA256SUMS"

# The signature of the files first: without it, there is no tag.
gpg --yes --armor --detach-sign --output "$artifacts/SHA256SUMS.asc" "$artifacts/SHA256SUMS"
git tag --sign "v$version" --message "keygate $version"
echo "tag: v$version and $artifacts/SHA256SUMS.asc are signed; publish them with: git push ORIGIN v$version"
