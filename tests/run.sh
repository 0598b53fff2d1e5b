#!/usr/bin/env bash
# All checks that a change has to pass. Needs Rust; installs a Redis server if there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

# Nothing is built twice here, and what cargo keeps for that takes more disk than all else.
export CARGO_INCREMENTAL=0

source tests/run/tools.sh
source tests/run/examples.sh
source tests/run/pool.sh

# Runs a command under a heading, and prints how long it took.
step() {
    local heading=$1 start=$SECONDS
    shift
    printf '\n=== %s\n' "$heading"
    "$@" || fail "$heading"
    printf -- '--- %s: %d s\n' "$heading" $((SECONDS - start))
}

# The README's command has the default features, docs.rs has all, and a service in memory has none.
docs() {
    local features
    for features in --all-features --no-default-features --features=default; do
        RUSTDOCFLAGS="-D warnings" cargo doc --no-deps "$features" || return
    done
}

lint() {
    cargo clippy --all-targets "$@" -- -D warnings
}

# Not the whole workspace: other members would add features of their own.
lint_only() {
    lint -p tower-semaphore -p tower-semaphore-properties --no-default-features --features "$1"
}

# The example may be there from the step before, with other features.
connections() {
    cargo build --no-default-features --features "$1" --example market &&
        cargo test --no-default-features --features "$1" --test redis_connections
}

step "tools" tools
step "format" cargo fmt --all --check
step "lints, all features" lint --workspace --all-features
step "lints, no features" lint_only ""
step "lints, native TLS" lint_only tower-semaphore/tls-native-tls
step "lints, no TLS" lint_only tower-semaphore/redis
step "documentation" docs
step "tests, all features" tests
# Here, because the tests have just built them with these features.
step "examples" examples
step "soak, one minute" tests/soak.sh 1
step "interleavings" cargo test --release -p tower-semaphore-interleavings
step "the guide's other crates" cargo test -p tower-semaphore-guide --doc
step "tests, no features" cargo test --no-default-features -p tower-semaphore -p tower-semaphore-properties
# With all features rustls does the work, and no TLS URL is refused.
step "tests, native TLS" connections tls-native-tls
step "tests, no TLS" connections redis
printf '\nAll good after %d s.\n' "$SECONDS"
