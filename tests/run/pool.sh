# Runs test programs, a few at a time: most of the time they wait.

# How many programs at a time, and how many tests of each.
at_once=3
export RUST_TEST_THREADS=4

# All that is tested with all features, in one build: a member that is built alone has other features of what all
# depend on, which would be built again.
members=(-p tower-semaphore -p tower-semaphore-model -p tower-semaphore-grpc -p tower-semaphore-browser
    -p tower-semaphore-cli)
# They compile sources of the library, whose examples work only in it.
parts=(-p tower-semaphore-sim -p tower-semaphore-driving)

# Those that take long, or load the machine, are left to the night.
of_the_night='/soak-'

# It compares rates, which what runs beside it changes.
export of_its_own='load::goodput'

tests() {
    local logs=${CARGO_TARGET_DIR:-target}/tests
    # A build server shows the end of a log, where a backtrace would stand instead of the panic's text.
    export RUST_BACKTRACE=0
    rm -rf "$logs"
    mkdir -p "$logs"
    cargo test --all-features "${members[@]}" "${parts[@]}" --no-run \
        --message-format=json-render-diagnostics >"$logs/built" || return
    programs "$logs/built" >"$logs/programs"
    # Also if cargo tells of them otherwise than it did.
    [ -s "$logs/programs" ] || fail "no test program is known"
    export -f run_logged count_passed
    in_order "$logs/programs" | tr '\n' '\0' |
        xargs -0 -n 1 -P "$at_once" bash -c 'run_logged "$0" "$1" --skip "$of_its_own" || echo "$1" >>"$0/again"' \
            "$logs" || return
    again "$logs" || return
    run_logged "$logs" "$(grep /attacks- "$logs/programs")" "$of_its_own"
}

# A machine that others keep busy too may be too slow for several programs at a time: the tests that have failed have to
# pass alone, and all of a program that has crashed.
again() {
    [ -f "$1/again" ] || return 0
    printf '\nAgain, one at a time:\n'
    local program failed=0 tests
    while IFS= read -r program; do
        mapfile -t tests < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$1/${program##*/}.log")
        run_logged "$1" "$program" ${tests[@]:+--exact "${tests[@]}"} </dev/null || failed=1
    done <"$1/again"
    return "$failed"
}

# Prints the folder of each package that has been built, and the program of its tests.
programs() {
    sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"test":true},"features".*"executable":"\([^"]*\)".*|\1 \2|p' "$1"
}

# Prints what is to be run, the longest first.
in_order() {
    local first='topology walks redis simulation attacks outage store page semaphore operate' name
    [ -z "$is_night" ] || grep -E "$of_the_night" "$1"
    for name in $first; do
        grep -E "/$name-" "$1"
    done
    grep -vE "/(${first// /|})-|$of_the_night" "$1"
}

# Runs a program in the folder of its package, with these arguments. Prints one line if it succeeds, and its whole
# output if not.
run_logged() {
    local folder=${2%% *} program=${2#* } name log start=$SECONDS
    log=$1/${program##*/}.log
    name=$(sed 's|.*/||; s|-[0-9a-f]*$||' <<<"$program")
    shift 2
    if (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" "$@") >"$log" 2>&1; then
        printf '%s: %s passed, %d s\n' "$name" "$(count_passed "$log")" $((SECONDS - start))
    else
        cat "$log"
        printf '%s: FAILED, %d s\n' "$name" $((SECONDS - start))
        return 1
    fi
}
