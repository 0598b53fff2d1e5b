#!/usr/bin/env bash
# Plants each bug in the core of a copy of this repository. Prints after how many schedules the simulation finds it, and by
# which promise.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
copy=$PWD/target/planted
rm -rf "$copy/repo"
mkdir -p "$copy/repo"
git ls-files -z | tar -c --null -T - | tar -x -C "$copy/repo"

# Plants the bug of this name, and prints after how many schedules the simulation finds it. Fails if it does not.
found() {
    local log seed rule test=the_shipped_core_passes
    [[ $1 == 'on a cluster:'* ]] && test+=_on_a_cluster
    [[ $1 == 'in outages:'* ]] && test+=_in_outages
    [[ $1 == 'in outages of a cluster:'* ]] && test+=_in_outages_of_a_cluster
    [[ $1 == 'with limits:'* ]] && test+=_with_limits
    [[ $1 == 'with pauses:'* ]] && test+=_with_pauses
    [[ $1 == 'with questions:'* ]] && test+=_with_questions
    [[ $1 == 'with a mixture:'* ]] && test+=_with_a_mixture
    [[ $1 == 'with budgets:'* ]] && test+=_with_budgets
    # The files get a new time, so cargo sees the change.
    cp proto/src/core/*.rs "$copy/repo/proto/src/core/"
    cp proto/src/question.rs "$copy/repo/proto/src/"
    cargo run -q -p tower-semaphore-sim --bin plant -- "$1" "$copy/repo" || return
    # Only what depends on the change is built again.
    log=$(cd "$copy/repo" && CARGO_TARGET_DIR=$copy/target SCHEDULES=20000 RUST_BACKTRACE=0 CARGO_INCREMENTAL=1 \
        timeout 900 cargo test -q --release --config 'profile.release.package.tower-semaphore-proto.opt-level=1' \
        -p tower-semaphore-sim --test simulation "$test" -- --exact 2>&1)
    seed=$(grep -om1 '^seed [0-9]*' <<<"$log" | cut -d' ' -f2)
    rule=$(grep -om1 '^of [^:]*' <<<"$log" | cut -d' ' -f2-)
    [ -n "$seed" ] || rule=$(grep -om1 'panicked\|^error.*' <<<"$log")
    # Seeds count from 0.
    printf '%s: %s schedules, %s\n' "$1" "${seed:+$((seed + 1))}" "$rule"
    [ -n "$seed" ]
}

missed=0
while IFS= read -r bug; do
    found "$bug" || missed=$((missed + 1))
done < <(sed -n '/^## In the scripts/q;s/^### //p' tests/sim/planted.md | grep -F -- "${1:-}")
printf '%d were not found\n' "$missed"
[ "$missed" = 0 ]
