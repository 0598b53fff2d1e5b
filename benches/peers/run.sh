#!/bin/sh
# Compares other libraries' semaphores with ours: each through its own client, on one Redis, in one run. Also compares
# nginx with our layer over HTTP, see http.sh.
#
#     benches/peers/run.sh [--quick]          PEERS="tower-semaphore bottleneck" for some of them
#
# Needs redis-server and redis-cli, and the languages of the peers: node and npm, python3, cargo. Needs nginx, unless
# apt-get can download it. A peer that cannot be installed or run is reported with its error. Installs under
# target/peers.
#
# Every driver understands these words; some also `newcomer KEY`:
#
#     pairs KEY TASKS SECONDS    acquires and releases, and prints the pairs per second
#     contend KEY                50 contenders for five permits: prints the total ms and the inversions
#     hold KEY                   takes the only permit, prints `held PID`, and waits to be killed
#     wait KEY                   prints the seconds until it has that permit
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
into="$root/target/peers"
seconds=5
[ "${1:-}" = "--quick" ] && seconds=2
mkdir -p "$into"
cd "$into" || exit 1

say() { printf '%s\n' "$*" >&2; }

# install NAME COMMAND: runs the command and keeps its output for the report.
install() {
    name=$1; shift
    say "installing $name"
    "$@" >"$into/$name.log" 2>&1 || say "  failed, see $into/$name.log"
}

node_peers() {
    cp "$here"/*.mjs "$into/"
    npm install --no-audit --no-fund --prefix "$into" redis-semaphore@5.8.0 bottleneck@2.19.5 \
        @trigger.dev/redis-worker@4.5.16 ioredis@5
}

python_peers() {
    python3 -m venv "$into/venv" && "$into/venv/bin/pip" install -q redis-rate-limiters==0.5.0
}

rust_peers() {
    cargo build --release --manifest-path "$here/rust/Cargo.toml" --target-dir "$into/rust"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

. "$here/http.sh"

install node node_peers
install python python_peers
install rust rust_peers
install nginx nginx_peer

port=$(free_port)
url="redis://127.0.0.1:$port"
data=$(mktemp -d)
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$data" >"$into/redis.log" 2>&1 &
server=$!
trap 'end_all; kill "$server"; wait "$server" 2>/dev/null; rm -rf "$data"' EXIT
trap 'exit 130' INT TERM
until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.05; done

drive() {
    peer=$1; shift
    case $peer in
        tower-semaphore) timeout 30 "$into/rust/release/peers" ours "$url" "$@" ;;
        tower-semaphore-four) timeout 30 "$into/rust/release/peers" four "$url" "$@" ;;
        distributed-lock) timeout 30 "$into/rust/release/peers" distributed-lock "$url" "$@" ;;
        redis-semaphore) timeout 60 node "$into/redis-semaphore.mjs" "$url" "$@" ;;
        bottleneck) timeout 60 node "$into/bottleneck.mjs" "$url" "$@" ;;
        trigger.dev) timeout 60 node "$into/trigger.mjs" "$url" "$@" ;;
        bottleneck-four) FOUR=1 timeout 30 node "$into/bottleneck.mjs" "$url" "$@" ;;
        redis-rate-limiters) timeout 30 "$into/venv/bin/python" "$here/redis_rate_limiters.py" "$url" "$@" ;;
    esac
}

# Prints a driver's figures for contention and the number of commands that it sends. Commands in scripts, which MONITOR
# marks with `lua`, do not count.
contend() {
    redis-cli -p "$port" monitor >"$into/monitor" 2>/dev/null &
    monitor=$!
    sleep 0.2
    figures=$(drive "$1" contend "contend-$1" 2>"$into/$1.err")
    sleep 0.5
    kill "$monitor"; wait "$monitor" 2>/dev/null
    sent=$(grep -vc ' lua\]' "$into/monitor")
    printf '%s %s' "${figures:-- -}" "$sent"
}

# Waits until the driver reports that it holds a permit.
until_held() {
    tries=0
    until grep -q held "$into/hold" || [ "$tries" -gt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
}

# Prints how long a permit stays taken after its holder is killed, in seconds.
orphan() {
    : >"$into/hold"
    drive "$1" hold "orphan-$1" >"$into/hold" 2>>"$into/$1.err" &
    until_held
    kill -9 "$(cut -d' ' -f2 "$into/hold")" 2>/dev/null
    drive "$1" wait "orphan-$1" 2>>"$into/$1.err"
}

# Prints one row of the libraries' table.
library() {
    say "measuring $1"
    one=$(drive "$1" pairs "one-$1" 1 "$seconds" 2>"$into/$1.err")
    if [ -z "$one" ]; then
        printf '| %s | cannot run: %s |\n' "$1" "$(tail -n 1 "$into/$1.err")"
        return
    fi
    many=$(drive "$1" pairs "many-$1" 16 "$seconds" 2>>"$into/$1.err")
    contended=$(contend "$1" | tr ' ' '|' | sed 's/|/ | /g')
    free=$(orphan "$1")
    printf '| %s | %s | %s | %s | %s |\n' "$1" "$one" "${many:--}" "$contended" "${free:--}"
}

libraries() {
    printf '| semaphore | pairs/s, 1 task | pairs/s, 16 tasks | total ms (ideal 1,000) | inversions of 1,225 | commands | free after a kill, s |\n'
    printf '|---|---|---|---|---|---|---|\n'
    for peer in "$@"; do library "$peer"; done
    printf '\n'
}

# Compares the libraries that can take several limits at once, under one limit and under four.
several() {
    printf '| semaphore | 1 task, one limit | 1 task, four limits | × | 16 tasks, one limit | 16 tasks, four limits | × |\n'
    printf '|---|---|---|---|---|---|---|\n'
    for peer in "$@"; do
        printf '| %s ' "$peer"
        for tasks in 1 16; do
            one=$(drive "$peer" pairs "several-$peer" "$tasks" "$seconds" 2>>"$into/$peer.err")
            four=$(drive "$peer-four" pairs "several-$peer" "$tasks" "$seconds" 2>>"$into/$peer.err")
            ratio=$(awk "BEGIN { if (${one:-0} > 0) printf \"%.2f\", ${four:-0} / ${one:-0} }")
            printf '| %s | %s | %s ' "${one:--}" "${four:--}" "${ratio:--}"
        done
        printf '|\n'
    done
    printf '\n'
}

# Prints the wait of one tenant's job behind another's crowd of 1,000, under a limit of 5 and with holds of 50 ms.
newcomers() {
    printf '| queue | wait of a newcomer, holds | jobs before it |\n|---|---|---|\n'
    for peer in "$@"; do
        figures=$(drive "$peer" newcomer "newcomer-$peer" 2>>"$into/$peer.err" | tail -n 1 | sed 's/ / | /')
        printf '| %s | %s |\n' "$peer" "${figures:-- | -}"
    done
    printf '\n'
}

all=" ${PEERS:-tower-semaphore redis-semaphore bottleneck redis-rate-limiters distributed-lock nginx} "
# The libraries, and those of them that take several limits, or compare tenants.
named=$(printf '%s' "$all" | sed 's/ nginx / /')
[ "$named" = " " ] || libraries $named
chained=$(printf '%s' "$named" | tr ' ' '\n' | grep -xE 'tower-semaphore|bottleneck')
[ -z "$chained" ] || several $chained
tenants=$(printf '%s' "$named" | tr ' ' '\n' | grep -xE 'tower-semaphore|redis-semaphore|bottleneck')
[ -z "$tenants" ] || newcomers $tenants trigger.dev
[ "$named" = "$all" ] || over_http
