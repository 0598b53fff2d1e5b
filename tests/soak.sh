#!/usr/bin/env bash
# Runs three markets for the given number of minutes, 1 by default, while Redis, connections and processes fail at
# random. Prints the seed of its choices: `SOAK_SEED=0x… tests/soak.sh 1` repeats them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# `cargo test --test` builds no examples, and would use an outdated one.
cargo build --all-features --example market
SOAK_MINUTES=${1:-1} exec cargo test --all-features --test soak market:: -- --ignored --nocapture
