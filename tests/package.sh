#!/usr/bin/env bash
# Runs the checks that a release must pass in addition to `tests/run.sh`: all of them, or the named steps.
#
#     tests/package.sh [features|msrv|deny|semver|publish]...
#
# features   the library compiles without a warning with every combination of its features
# msrv       the library and the command line compile with the oldest Rust that Cargo.toml names
# deny       licences, sources and advisories of all dependencies, by deny.toml
# semver     the public API fits the version, compared with the tag of the last release
# publish    cargo packs the three crates and builds the packages
#
# Installs missing tools of cargo. Publishes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

source tests/run/tools.sh

crate=tower-semaphore
# The command line, which needs the same version of the library.
cli=tower-semaphore-cli
# The core and the scripts, which the library needs.
proto=tower-semaphore-proto

# While cargo-hack works, it hides the development dependencies, so the tree must be clean.
features() {
    cargo_tool cargo-hack &&
        RUSTFLAGS="-D warnings" cargo hack check -p "$crate" --feature-powerset \
            --exclude-features default --no-dev-deps
}

msrv() {
    local rust
    rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    rustup toolchain install "$rust" --profile minimal --no-self-update &&
        RUSTFLAGS="-D warnings" cargo "+$rust" check -p "$crate" -p "$cli" --all-features --locked
}

# Bans apply to the dependencies that users get. Set `CHECKS="licenses sources"` if the database of advisories is out of
# reach.
deny() {
    # Unquoted, because each word is a separate check.
    cargo_tool cargo-deny &&
        cargo deny --workspace --all-features check ${CHECKS:-advisories licenses sources} &&
        cargo deny --exclude-dev --all-features check bans &&
        cargo deny --manifest-path cli/Cargo.toml --exclude-dev --all-features check bans
}

# Release tags have the form v1.2.3. A tag of this commit itself is not the last release. Before the first release, no
# API can break.
semver() {
    local release
    if ! release=$(git describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ 2>/dev/null); then
        echo "no release has been tagged, so there is no API to keep"
        return
    fi
    cargo_tool cargo-semver-checks &&
        cargo semver-checks -p "$crate" --all-features --baseline-rev "$release"
}

# The packages leave out the tests on purpose. Any other warning is a failure.
publish() {
    local output status=0
    output=$(cargo publish --dry-run --locked -p "$proto" -p "$crate" -p "$cli" 2>&1) || status=$?
    grep -v 'warning: ignoring test' <<<"$output"
    [ "$status" = 0 ] &&
        ! grep '^warning' <<<"$output" | grep -qvE 'ignoring test|aborting upload due to dry run'
}

# Installs a tool of cargo if it is missing.
cargo_tool() {
    cargo "${1#cargo-}" --version >/dev/null 2>&1 || cargo install "$1" --locked
}

steps=(features msrv deny semver publish)
[ $# -gt 0 ] || set -- "${steps[@]}"
# For the feature `tls-native-tls`, which uses OpenSSL on Linux.
[ "$(uname)" != Linux ] || has_openssl || install_openssl || fail "$no_openssl"
for name in "$@"; do
    [[ " ${steps[*]} " == *" $name "* ]] || fail "no step is called $name"
    printf '\n=== %s\n' "$name"
    "$name" || fail "$name"
done
printf '\nAll good after %d s.\n' "$SECONDS"
