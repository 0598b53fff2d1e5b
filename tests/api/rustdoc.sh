#!/usr/bin/env bash
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
