# Runs the tests with all features, a few programs at a time: most of the time they wait.

# How many at a time. Each runs as many tests at once as there are processors.
at_once=3

tests() {
    local logs=${CARGO_TARGET_DIR:-target}/tests
    # A build server shows the end of a log, where a backtrace would stand instead of the panic's text.
    export RUST_BACKTRACE=0
    rm -rf "$logs"
    mkdir -p "$logs"
    cargo test --all-features --no-run --message-format=json-render-diagnostics >"$logs/built" ||
        return
    export -f run_logged count_passed
    commands "$logs/built" | tr '\n' '\0' |
        xargs -0 -n 1 -P "$at_once" bash -c 'run_logged "$0" "$1" || echo "$1" >>"$0/again"' "$logs" ||
        return
    again "$logs" || return
    cargo test --all-features --doc
}

# A machine that others keep busy too may be too slow for several programs at a time: what has failed has to pass alone.
again() {
    [ -f "$1/again" ] || return 0
    printf '\nAgain, one at a time:\n'
    local command failed=0
    while IFS= read -r command; do
        run_logged "$1" "$command" </dev/null || failed=1
    done <"$1/again"
    return "$failed"
}

# Prints what is to be run, the longest first.
commands() {
    local programs
    programs=$(sed -n 's/.*"overflow_checks":[a-z]*,"test":true}.*"executable":\("[^"]*"\).*/\1/p' "$1")
    # Also if cargo tells of them otherwise than it did.
    [ -n "$programs" ] || fail "no test program is known"
    echo "tests/matrix.sh --brief installed resp3-tls"
    grep -E '/redis_(cluster|outage|attacks|soak)-' <<<"$programs"
    echo "cargo test -p tower-semaphore-model"
    echo "cargo test -p tower-semaphore-sim"
    echo "cargo test -p tower-semaphore-driving"
    echo "cargo test -p tower-semaphore-properties"
    echo "cargo test -p tower-semaphore-grpc"
    # In a real browser.
    echo "cargo test -p tower-semaphore-browser"
    grep -vE '/redis_(cluster|outage|attacks|soak)-' <<<"$programs"
}

# Runs a command. Prints one line if it succeeds, and its whole output if not.
run_logged() {
    local name log count start=$SECONDS
    name=$(sed 's|.*/deps/||; s|-[0-9a-f]*"$||' <<<"$2")
    log=$1/${name//[ \/]/_}.log
    if eval "$2" >"$log" 2>&1; then
        count=$(count_passed "$log")
        # A script counts by itself.
        [ "$count" = 0 ] && count=all
        printf '%s: %s passed, %d s\n' "$name" "$count" $((SECONDS - start))
    else
        cat "$log"
        printf '%s: FAILED, %d s\n' "$name" $((SECONDS - start))
        return 1
    fi
}
