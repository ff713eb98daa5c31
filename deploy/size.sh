#!/bin/sh
# Counts lines of code below src/ and crates/: without blank lines, comments, and code of tests. One row for each room
# of src/, and each crate; the simulation, a tool of the tests, has a row and is not in the sum. Reads rustfmt's layout:
# an item of tests is `#[cfg(test)]` at the beginning of a line, and ends with a brace or a semicolon there.
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
