#!/usr/bin/env bash
# Plants one mistake after another in the library, and checks that a test fails. `tests/mutants.sh memory` covers the
# parts that need no Redis, and `tests/mutants.sh redis` covers the store in Redis. Further arguments go to
# cargo-mutants: `tests/mutants.sh redis --shard 3/40`. See TESTING.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo mutants --version || cargo install cargo-mutants --locked --version 27.1.0

# Building a mutant takes half of its time.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0

without_redis=(http store)
with_redis=(store redis attacks outage)

# Runs cargo-mutants with the unit tests and these integration tests. The list of tests ends with `--`. The tests are
# arguments of cargo, so that a mutant's build contains only them.
run() {
    local tests=(--cargo-arg=--lib)
    while [ "$1" != -- ]; do
        tests+=("--cargo-arg=--test=$1")
        shift
    done
    shift
    cargo mutants --minimum-test-timeout 60 --no-default-features --test-package tower-semaphore "${tests[@]}" "$@"
}

half=${1-}
shift || true
case $half in
memory)
    files=('src/semaphore/**' 'src/memory/**' 'src/body/**' src/future.rs)
    run "${without_redis[@]}" -- "${files[@]/#/--file=}" "$@"
    ;;
redis)
    run "${with_redis[@]}" -- --package tower-semaphore --package tower-semaphore-proto \
        --file='src/redis/**' --file='proto/src/**' --features redis,tracing "$@"
    ;;
*)
    printf 'usage: tests/mutants.sh memory|redis [OPTIONS OF CARGO-MUTANTS]\n' >&2
    exit 2
    ;;
esac
