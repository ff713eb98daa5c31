#!/bin/sh
# Counts lines of code below src/ and crates/: without blank lines, comments, and code of tests. One row for each room
# of src/, and each crate; the simulation, a tool of the tests, has a row and is not in the sum. Reads rustfmt's layout:
# an item of tests is `#[cfg(test)]` at the beginning of a line, and ends with a brace or a semicolon there.
#
# Then what is worth a look for its length: files of more than 300 lines before their tests, and functions of more than
# 40. An arm of a `match` that is one expression on a line does not count.
set -eu
cd "$(dirname "$0")/.."

find src crates -name '*.rs' ! -name 'tests.rs' ! -path '*/tests/*' | sort | xargs awk '
    FNR == 1 { in_tests = 0; is_marked = 0 }
    /^#\[cfg\(test\)\]/ { is_marked = 1; next }
    is_marked && /^#\[/ { next }
    is_marked {
        is_marked = 0
        # An item of one line is over; any other goes on to its closing brace.
        in_tests = !/[;}]$/
        next
    }
    in_tests { if (/^[})]/) in_tests = 0; next }
    /^[ \t]*$/ || /^[ \t]*\/\// { next }
    {
        split(FILENAME, part, "/")
        room = part[1] "/" part[2]
        sub(/\.rs$/, "", room)
        lines[room]++
        if (room != "crates/simulation") total++
    }
    END {
        for (room in lines) printf "%7d  %s\n", lines[room], room | "sort -k1,1nr -k2"
        close("sort -k1,1nr -k2")
        printf "%7d  all\n", total
    }
'

find src crates -name '*.rs' ! -name 'tests.rs' ! -path '*/tests/*' | sort | xargs awk '
    function end_file() { if (name != "" && code > 300) printf "%7d  %s\n", code, name }
    FNR == 1 { end_file(); name = FILENAME; code = 0; in_tests = 0; start = 0 }
    /^#\[cfg\(test\)\]/ { in_tests = 1 }
    in_tests { next }
    { code = FNR }
    !start && /^ *(pub(\([a-z:]+\))? )?(const )?(async )?(unsafe )?fn [a-z0-9_]+/ && !/[;}]$/ {
        start = FNR; arms = 0
        match($0, /^ */); end = sprintf("%*s}", RLENGTH, "")
        match($0, /fn [a-z0-9_]+/); function_name = substr($0, RSTART + 3, RLENGTH - 3)
    }
    start && / => .*,$/ { arms++ }
    start && $0 == end || start && /;$/ && FNR == start {
        lines = FNR - start + 1 - arms
        if (lines > 40) printf "%7d  %s: %s\n", lines, FILENAME, function_name
        start = 0
    }
    END { end_file() }
' | sort -k1,1nr -k2
