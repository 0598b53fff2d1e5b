#!/usr/bin/env bash
# Lets three markets work for so many minutes, 1 unless given, while Redis, connections and processes
# fail at random. Prints the seed of its choices: `SOAK_SEED=0x… tests/soak.sh 1` makes them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# `cargo test --test` builds no examples, and would use one that is out of date.
cargo build --all-features --example market
SOAK_MINUTES=${1:-1} exec cargo test --all-features --test soak market:: -- --ignored --nocapture
