# Runs test programs, a few at a time, because most of the time they wait.

# The number of programs at a time, and the number of concurrent tests of each.
at_once=3
export RUST_TEST_THREADS=4

# All packages that are tested with all features, in one build. A member that is built alone enables other features of
# shared dependencies, and these would be built again.
members=(-p tower-semaphore -p tower-semaphore-model -p tower-semaphore-grpc -p tower-semaphore-browser
    -p tower-semaphore-cli)
# These compile sources of the library, whose doctests only work in the library.
parts=(-p tower-semaphore-sim -p tower-semaphore-driving)

# Programs that take long and load the machine run only at night.
night_programs='/soak-'

# The tests of these programs compute all the time, or load a server as much as they can. They run after the others, one
# program at a time, because they would take the processors from tests that measure time, and from each other.
export computing='(attacks|simulation|walks|mutants)'

# Most tests of this program take a lock to run alone. In parallel they would wait for each other, and the wait would
# count in the two minutes of each test.
export serial='^attacks$'

# This test compares rates, so it runs with nothing beside it, at the end.
export alone='load::goodput'

tests() {
    local logs=${CARGO_TARGET_DIR:-target}/tests
    # A build server shows the end of a log. A backtrace there would hide the panic's message.
    export RUST_BACKTRACE=0
    rm -rf "$logs"
    mkdir -p "$logs"
    cargo test --all-features "${members[@]}" "${parts[@]}" --no-run \
        --message-format=json-render-diagnostics >"$logs/built" || return
    programs "$logs/built" >"$logs/programs"
    # Fails if cargo's output has changed its form.
    [ -s "$logs/programs" ] || fail "no test program is known"
    export -f run_logged run_in run_bounded end_hung slow count_passed
    in_order "$logs/programs" | grep -vE "/$computing-" | run_pool "$at_once" "$logs" || return
    in_order "$logs/programs" | grep -E "/$computing-" | run_pool 1 "$logs" || return
    again "$logs" || return
    run_logged "$logs" "$(grep /attacks- "$logs/programs")" "$alone"
}

# Reads a list of programs and runs them (number at a time, folder of the logs). Lists those that fail in the file
# `again`.
run_pool() {
    tr '\n' '\0' | xargs -0 -n 1 -P "$1" bash -c 'run_logged "$0" "$1" --skip "$alone" || echo "$1" >>"$0/again"' "$2"
}

# Repeats the tests that have not passed, one program at a time, so that one race does not fail the whole run. A test
# that passes only now is a defect.
again() {
    [ -f "$1/again" ] || return 0
    printf '\nAgain, one at a time:\n'
    local program log failed=0 tests
    while IFS= read -r program; do
        log=$1/$(basename "${program#* }")
        mv "$log.log" "$log.first.log"
        mapfile -t tests < <(not_passed "$program" "$log.first.log")
        if run_logged "$1" "$program" ${tests[@]:+--exact "${tests[@]}"} </dev/null; then
            note_defects "$log.first.log" >>"$(defects_log)"
        else
            failed=1
        fi
    done <"$1/again"
    return "$failed"
}

# Reads the program's log, and prints the tests that have not passed: they failed, or the program ended before them.
not_passed() {
    comm -23 <("${1#* }" --list --format terse --skip "$alone" | sed -n 's/: test$//p' | sort) \
        <(sed -nE '/^test .* \.\.\. (ok|ignored.*)$/{ s/^test (.*) \.\.\. .*/\1/; s/ - should panic$//; p; }' "$2" | sort)
}

# Reads a log, and prints the tests that have failed, or a line for a program that has crashed.
note_defects() {
    local tests
    tests=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$1")
    printf '%s\n' "${tests:-a program that has crashed}" | sed "s|\$|: see $1|"
}

# Prints the path of the list of defects.
defects_log() {
    printf '%s/tests/defects\n' "${CARGO_TARGET_DIR:-target}"
}

# Prints the tests that failed and then passed alone.
print_defects() {
    local defects
    defects=$(defects_log)
    [ -s "$defects" ] || return 0
    printf '\n!!! Defects: %d. These tests have failed beside others and passed alone, so they have a race:\n' \
        "$(wc -l <"$defects")"
    sed 's/^/!!! - /' "$defects"
}

# Reads cargo's messages, and prints the folder of each package with each test program that was built for it.
programs() {
    sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"test":true},"features".*"executable":"\([^"]*\)".*|\1 \2|p' "$1"
}

# Prints the programs to run, the longest first.
in_order() {
    local first='topology redis attacks outage store page semaphore operate simulation walks' name
    [ -z "$is_night" ] || grep -E "$night_programs" "$1"
    for name in $first; do
        grep -E "/$name-" "$1"
    done
    grep -vE "/(${first// /|})-|$night_programs" "$1"
}

# Runs a program in the folder of its package, with these arguments. Prints one line if it succeeds, and its whole
# output if it fails.
run_logged() {
    local folder=${2%% *} program=${2#* } name log start=$SECONDS
    log=$1/${program##*/}.log
    name=$(sed 's|.*/||; s|-[0-9a-f]*$||' <<<"$program")
    shift 2
    [[ ! $name =~ ^$computing$ ]] || local -x RUST_TEST_THREADS=2
    [[ ! $name =~ $serial ]] || local -x RUST_TEST_THREADS=1
    # Each soak test loads the machine for a while, and the last one waits for the others.
    [ "$name" != soak ] || local longest=900
    if run_bounded "$log" run_in "$folder" "$program" "$@"; then
        printf '%s: %s passed, %d s\n' "$name" "$(count_passed "$log")" $((SECONDS - start))
    else
        cat "$log"
        printf '%s: FAILED, %d s\n' "$name" $((SECONDS - start))
        return 1
    fi
}

# Runs a program in the folder of its package, in place of this shell.
run_in() {
    export CARGO_MANIFEST_DIR=$1
    cd "$1" || return
    shift
    exec "$@"
}
