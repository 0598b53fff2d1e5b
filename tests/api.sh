#!/usr/bin/env bash
# Compares the public API with tests/api/api.txt, and fails if they differ. With `--write`, writes that file. So each
# change of the API is a diff that a reviewer sees. Needs Rust 1.95, because other releases write other JSON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_INCREMENTAL=0
target=${CARGO_TARGET_DIR:-target}

# rustdoc writes JSON only in nightly mode. The variable is set for rustdoc alone, because build scripts read it too.
RUSTDOC=$PWD/tests/api/rustdoc.sh cargo rustdoc --quiet --all-features -p tower-semaphore --lib -- \
    -Zunstable-options --output-format json --cap-lints allow
cargo build --quiet -p tower-semaphore-api
"$target/debug/tower-semaphore-api" "$target/doc/tower_semaphore.json" >"$target/api.txt"

case "$*" in
    "") diff -u tests/api/api.txt "$target/api.txt" || {
        printf 'The public API has changed. If that is meant: tests/api.sh --write\n' >&2
        exit 1
    } ;;
    --write) cp "$target/api.txt" tests/api/api.txt ;;
    *)
        printf 'usage: tests/api.sh [--write]\n' >&2
        exit 2
        ;;
esac
