# Ends a test that takes too long, and reports its name.

# The longest time of a test, in seconds. Libtest reports a test after 60 seconds.
export longest=120

# Runs a command with its output in a log, and fails if the command fails. If a test takes too long, ends the command
# and adds the test to the log as failed. Runs in a subshell, so that the traps end with it.
run_bounded() (
    local log=$1 command watcher status=0
    shift
    : >"$log"
    # A process group, so that processes that a test has started can be killed too.
    set -m
    "$@" >>"$log" 2>&1 &
    command=$!
    set +m
    trap 'kill -KILL -- "-$command" 2>/dev/null; exit 130' INT TERM
    end_hung "$command" "$log" >>"$log" 2>&1 &
    watcher=$!
    wait "$command" 2>/dev/null || status=$?
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    if [ "$status" -gt 128 ]; then
        # The test's servers have watchers, which need a second to clean up.
        sleep 1
        kill -KILL -- "-$command" 2>/dev/null || true
    fi
    exit "$status"
)

# Waits until a test takes too long, reports it in the form of a libtest failure, and ends its command.
end_hung() {
    local command=$1 log=$2 name
    local -A reported=()
    while sleep 1; do
        while IFS= read -r name; do
            : "${reported[$name]:=$SECONDS}"
            [ $((SECONDS - reported[$name])) -ge $((longest - 60)) ] || continue
            printf '\ntest %s ... FAILED\n!!! ended: %s has not finished within %d s\n' "$name" "$name" "$longest"
            kill -KILL "$command"
            return
        done < <(slow "$log")
    done
}

# Reads a log, and prints the tests that have run for 60 seconds and still run.
slow() {
    awk '
        !sub(/^test /, "") { next }
        sub(/ has been running for over 60 seconds$/, "") { running[$0] = 1 }
        sub(/ \.\.\. (ok|FAILED)$/, "") { sub(/ - should panic$/, ""); delete running[$0] }
        END { for (name in running) print name }
    ' "$1"
}
