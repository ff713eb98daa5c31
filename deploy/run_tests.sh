#!/bin/sh
# run_tests.sh SECONDS COMMAND...: runs a test command. One that does not end in this time is ended, and fails with the
# names of the tests that were still running.
#
# cargo nextest, with a time-out for each test and a list of the slowest, is in no package of Debian, and takes more
# than seven minutes of a core to build: each run of the continuous integration would wait for it longer than it saves.
set -eu
seconds=$1
shift
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
{
  code=0
  timeout --kill-after=30 "$seconds" "$@" 2>&1 || code=$?
  echo "$code" >"$log/code"
} | tee "$log/output"
code=$(cat "$log/code")
if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
  echo "The tests did not end within $seconds s. Still running were:"
  sed -n 's/^test \(.*\) has been running for over 60 seconds$/\1/p' "$log/output" | while read -r name; do
    grep -q "^test $name \.\.\. " "$log/output" || echo "  $name"
  done
fi
exit "$code"
