#!/usr/bin/env bash
# Compares metrics on and off: builds the bench `metrics` with and without the feature, and runs the two programs
# alternately, 15 times unless an argument gives another number. Prints the medians of both, and of the ratios of the
# runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
turns=${1:-15}

# Builds the program with these arguments and prints its path.
program() {
    cargo bench -q -p tower-semaphore-benches --bench metrics --no-run --message-format=json "$@" |
        sed -n 's/.*"name":"metrics".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

runs=$(mktemp)
trap 'rm -f "$runs"' EXIT
off=$(program)
on=$(program --features metrics)
[ "$off" != "$on" ] || { echo "both are one program" >&2; exit 1; }
for turn in $(seq "$turns"); do
    # In every second turn the other program runs first.
    order="off on"
    [ $((turn % 2)) = 0 ] || order="on off"
    for which in $order; do
        "${!which}" | sed "s/^/$turn $which /" >>"$runs"
    done
done
awk '
    function median(values, count,    i, j, swap) {
        for (i = 2; i <= count; i++)
            for (j = i; j > 1 && values[j - 1] > values[j]; j--) {
                swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap
            }
        return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
    }
    # A line has the turn, `off` or `on`, the store, the operations per second, and the cost of one operation.
    { rate[$3, $2, $1] = $4; cost[$3, $2, $1] = $5; stores[$3]; if ($1 > turns) turns = $1 }
    END {
        print "what: per second off, on, ratio on/off; cost of one off, on (us of processor; of a pair ns), ratio off/on"
        for (store in stores) {
            for (t = 1; t <= turns; t++) {
                a[t] = rate[store, "off", t]; b[t] = rate[store, "on", t]; c[t] = b[t] / a[t]
                d[t] = cost[store, "off", t]; e[t] = cost[store, "on", t]; f[t] = d[t] / e[t]
            }
            printf "%s: %.0f %.0f %.3f; %.3f %.3f %.3f\n", store, median(a, turns), median(b, turns),
                median(c, turns), median(d, turns), median(e, turns), median(f, turns)
        }
    }' "$runs"
