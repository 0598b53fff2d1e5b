#!/usr/bin/env bash
# Runs rustdoc in nightly mode, for tests/api.sh.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
