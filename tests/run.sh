#!/usr/bin/env bash
# All checks that a change has to pass. Needs Rust; installs a Redis server if there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

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

docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
}

lint() {
    cargo clippy --workspace --all-targets "$@" -- -D warnings
}

# The example may be there from the step before, with other features.
connections() {
    cargo build --no-default-features --features "$1" --example market &&
        cargo test --no-default-features --features "$1" --test redis_connections
}

step "tools" tools
step "format" cargo fmt --all --check
step "lints, all features" lint --all-features
step "lints, no features" lint --no-default-features
step "lints, native TLS" lint --no-default-features --features tls-native-tls
step "lints, no TLS" lint --no-default-features --features redis
step "documentation" docs
step "tests, all features" tests
# Here, because the tests have just built them with these features.
step "examples" examples
step "soak, one minute" tests/soak.sh 1
step "interleavings" cargo test --release -p tower-semaphore-interleavings
step "tests, no features" cargo test --no-default-features
# With all features rustls does the work, and no TLS URL is refused.
step "tests, native TLS" connections tls-native-tls
step "tests, no TLS" connections redis
printf '\nAll good after %d s.\n' "$SECONDS"
