# Runs each example as a process. Sends a request to each server, and waits for the end of the crawler.

work=$(mktemp -d)
redis_pid=
example_pid=

# The requests to the examples.
get=$'GET /market HTTP/1.1\r\nhost: example\r\nx-account-id: ann\r\nconnection: close\r\n\r\n'
wanted='{"model":"small","prompt":"one","max_tokens":1}'
completion=$'POST /v1/completions HTTP/1.1\r\nhost: example\r\nauthorization: Bearer ann\r\n'
completion+="content-length: ${#wanted}"$'\r\nconnection: close\r\n\r\n'$wanted

# Ends all processes that this run has started, by process id, even if a step has failed.
clean_up() {
    [ -z "$example_pid" ] || end "$example_pid"
    [ -z "$redis_pid" ] || end "$redis_pid"
    rm -rf "$work"
}

examples() {
    local source name runner
    # Built in the same way as by the tests.
    cargo build --all-features "${members[@]}" --examples --bins || return
    start_redis
    for source in examples/*.rs examples/*/main.rs examples/*/src/main.rs; do
        name=${source#examples/}
        name=${name%/main.rs}
        name=${name%/src}
        name=${name%.rs}
        runner=try_example
        [ "$name" != crawler ] || runner=run_example
        # The first argument is a title, the second the example.
        "$runner" "$name" "$name"
        grep -rq REDIS_URL "examples/$name"* || continue
        "$runner" "$name with Redis" "$name" "REDIS_URL=redis://127.0.0.1:$redis_port/"
    done
}

# Prints the path of an example's program. An example with a separate package is built as a program, in `debug`.
program() {
    local folder=${CARGO_TARGET_DIR:-target}/debug
    [ -e "examples/$1/Cargo.toml" ] || folder+=/examples
    printf '%s/%s' "$folder" "$1"
}

# Starts an example (title, name, more environment), sends it one request, and ends it.
try_example() {
    local title=$1 name=$2 log="$work/example" url
    shift 2
    # Emptied here, because the child may be slower than the first check.
    : >"$log"
    env -u REDIS_URL PORT=0 "$@" "$(program "$name")" \
        >"$log" 2>"$log.errors" &
    example_pid=$!
    wait_for_log "$example_pid" "$log" '^listening on http://' || fail_with "$title does not listen" "$log"
    url=$(sed -n '1s|^listening on http://||p' "$log")
    request "$name" "$url" || fail_with "$title does not answer" "$log"
    printf '%s: %s\n' "$title" "$status"
    end "$example_pid"
    example_pid=
}

# Runs an example (title, name, more environment) that ends by itself, and expects it to succeed.
run_example() {
    local title=$1 name=$2 log="$work/example"
    shift 2
    env -u REDIS_URL "$@" "$(program "$name")" \
        >"$log" 2>"$log.errors" &
    example_pid=$!
    wait_for_end "$example_pid" || fail_with "$title fails" "$log"
    example_pid=
    # The second line of its output stands for the rest.
    printf '%s: %s\n' "$title" "$(sed -n 2p "$log")"
}

# Sends a request to an example at HOST:PORT and expects a 200. Sets `status` to the answer's status line, or to the
# output of the example's client.
request() {
    local address=$2 text=$get
    [ "$1" != gateway ] || text=$completion
    status=
    if [ "$1" = grpc ]; then
        "$(program grpc)" "http://$address" ann >"$work/answer" &
        wait_for_end $! || return
        status=$(<"$work/answer")
        [[ $status == "12 prices"* ]]
        return
    fi
    exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || return 1
    printf '%s' "$text" >&3
    read -r -t 10 status <&3 || true
    exec 3>&-
    status=${status%$'\r'}
    [[ $status == "HTTP/1.1 200"* ]]
}

# Starts a private Redis server on a free port.
start_redis() {
    local try log="$work/redis"
    for try in {1..10}; do
        redis_port=$((20000 + RANDOM % 10000))
        : >"$log"
        redis-server --bind 127.0.0.1 --port "$redis_port" --dir "$work" \
            --save "" --appendonly no >"$log" 2>&1 &
        redis_pid=$!
        wait_for_log "$redis_pid" "$log" 'Ready to accept connections' && return
        end "$redis_pid"
        redis_pid=
    done
    fail_with "no Redis server has started" "$log"
}

# Waits up to 10 s for a pattern in the log of a process. Fails at once if the process ends.
wait_for_log() {
    local try
    for try in {1..200}; do
        grep -q "$3" "$2" && return
        kill -0 "$1" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# Waits up to a minute for a child process to end. Fails if the process fails or still runs.
wait_for_end() {
    local try
    for try in {1..1200}; do
        if ! kill -0 "$1" 2>/dev/null; then
            wait "$1"
            return
        fi
        sleep 0.05
    done
    end "$1"
    return 1
}

# Sends a process SIGTERM, and SIGKILL if it still runs after 5 s.
end() {
    local try
    kill "$1" 2>/dev/null || true
    for try in {1..100}; do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

fail_with() {
    cat "$2"* >&2
    fail "$1"
}
