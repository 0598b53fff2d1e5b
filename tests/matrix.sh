#!/usr/bin/env bash
# Runs the conformance suite on several servers, in each way that a store can reach them, and prints the number of
# passed tests:
#
#     tests/matrix.sh [--brief] [SERVER|all [WAY...]]
#
# `--brief` leaves out the tests whose results depend on neither the server nor the way, as far as we know. The servers
# and the ways are listed below, and all of them run by default. The logs are in target/matrix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

all_servers=(redis-6.2 installed valkey-8.1 valkey-9.1)
all_ways=(resp2 resp3 resp2-tls resp3-tls)
topologies=(single cluster sentinel)
brief=
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/matrix"
logs=$(cd "$target/matrix" && pwd)
table=
failures=0

source tests/run/tools.sh
source tests/matrix/servers.sh
source tests/matrix/suites.sh

main() {
    local server
    if [ "${1:-}" = --brief ]; then
        brief=yes
        shift
    fi
    [ "${1:-all}" = all ] || all_servers=("$1")
    shift $(($# > 0))
    [ $# = 0 ] || all_ways=("$@")
    build
    [[ ${all_ways[*]} != *-tls* ]] || certificates
    for server in "${all_servers[@]}"; do
        test_server "$server"
    done
    print_table
    [ "$failures" = 0 ] || fail "cells of the matrix: $failures"
}

# Adds the rows of a server: one row for each topology, with a cell for each way.
test_server() {
    local name=$1 file version topology
    file=$(server_file "$name")
    version=$(server_version "$name" "$file")
    for topology in "${topologies[@]}"; do
        table+="| $version | $topology |"
        test_ways
        table+=$'\n'
    done
}

# Adds the cells of a row: one for each way.
test_ways() {
    local way cell
    for way in "${all_ways[@]}"; do
        cell="no TLS in it"
        if [[ $way != *-tls ]] || has_tls "$file"; then
            printf '%s, %s, %s: ' "$version" "$topology" "$way"
            test_cell
            printf '%s\n' "$cell"
        fi
        table+=" $cell |"
    done
}

# Runs the suites of a topology. Sets `cell` to the number of passed tests, or to FAILED.
test_cell() {
    local log=$logs/$name-$topology-$way.log count
    if reached_by "$file" "$way" suites "$topology" >"$log" 2>&1 && count=$(passed "$log"); then
        cell="$count passed"
    else
        cell=FAILED
        failures=$((failures + 1))
        failed_tests "$log"
    fi
}

print_table() {
    local way head="| server | topology |" rule="|---|---|"
    for way in "${all_ways[@]}"; do
        head+=" $way |"
        rule+="---|"
    done
    printf '\n%s\n%s\n%s' "$head" "$rule" "$table"
}

main "$@"
