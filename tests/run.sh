#!/usr/bin/env bash
# Runs the checks that each change must pass, in some ten minutes. With `--all`, also runs the checks that take an hour:
# before a release, and each night. Needs Rust, and installs a Redis server if none is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

is_night=
case "$*" in
    "") ;;
    --all) is_night=yes ;;
    *)
        printf 'usage: tests/run.sh [--all]\n' >&2
        exit 2
        ;;
esac

# Nothing changes during a run, so the files for incremental builds are of no use. They take more disk space than all
# others.
export CARGO_INCREMENTAL=0

source tests/run/tools.sh
source tests/run/bound.sh
source tests/run/examples.sh
source tests/run/pool.sh

rm -f "$(defects_log)"
# Prints the defects last, even if something else fails.
trap 'clean_up; print_defects' EXIT
trap 'exit 130' INT TERM

# Runs a command under a heading, and prints its duration.
step() {
    local heading=$1 start=$SECONDS
    shift
    printf '\n=== %s\n' "$heading"
    "$@" || fail "$heading"
    printf -- '--- %s: %d s\n' "$heading" $((SECONDS - start))
}

docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps "$@"
}

lint() {
    cargo clippy --all-targets "$@" -- -D warnings
}

# Checks one package instead of the workspace, because other members would add features.
lint_only() {
    lint -p tower-semaphore --no-default-features --features "$1"
}

# An earlier step may have built the example with other features.
connections() {
    cargo build --no-default-features --features "$1" --example market &&
        cargo test --no-default-features --features "$1" --test redis connections::
}

# Runs all doctests as one program under the bound.
doctests() {
    local log=${CARGO_TARGET_DIR:-target}/tests/doctests.log
    run_bounded "$log" cargo test --all-features "${members[@]}" --doc || {
        cat "$log"
        return 1
    }
    printf '%s passed\n' "$(count_passed "$log")"
}

# Runs 17,500 schedules of each workload. The tests of each change run 3,196 of all workloads together.
schedules() {
    local workload
    for workload in "" _on_a_cluster _in_outages _in_outages_of_a_cluster _with_fair_queues _with_limits _with_pauses \
        _with_questions _with_a_mixture _with_budgets; do
        SCHEDULES=17500 cargo test --release -p tower-semaphore-sim --test simulation \
            "the_shipped_core_passes$workload" -- --exact || return
    done
    # Bugs that only one schedule in many shows.
    cargo test --release -p tower-semaphore-sim --test simulation each_rare -- --ignored
}

night() {
    step "lints, no features" lint_only ""
    step "lints, native TLS" lint_only tower-semaphore/tls-native-tls
    step "lints, no TLS" lint_only tower-semaphore/redis
    # The README's command uses the default features, docs.rs uses all features, and a service in memory uses none.
    step "documentation, no features" docs --no-default-features
    step "documentation, default features" docs --features=default
    step "the public API" tests/api.sh
    step "messages of mistakes" cargo test -p tower-semaphore-mistakes
    step "the matrix" tests/matrix.sh --brief installed resp3-tls
    step "soak, one minute" tests/soak.sh 1
    step "behind proxies" cargo test --all-features --test proxies -- --ignored
    step "four gateways" cargo test --all-features --test clients -- --ignored
    step "storm, one minute" env STORM_SECONDS=60 cargo test --all-features --test attacks storm::
    step "interleavings" cargo test --release -p tower-semaphore-interleavings
    step "simulation, 175,000 schedules" schedules
    step "model, every state" env DEEP=1 cargo test --all-features -p tower-semaphore-model --test walks --test budgets
    step "the guide's other crates" cargo test -p tower-semaphore-guide --doc
    step "tests, no features" cargo test --no-default-features -p tower-semaphore
    # With all features rustls does the work, and no TLS URL is refused.
    step "tests, native TLS" connections tls-native-tls
    step "tests, no TLS" connections redis
}

step "tools" tools
step "format" cargo fmt --all --check
step "lints, all features" lint --workspace --all-features
step "documentation, all features" docs --all-features
step "tests, all features" tests
step "examples in the documentation" doctests
step "examples" examples
[ -z "$is_night" ] || night
printf '\nAll good after %d s.\n' "$SECONDS"
