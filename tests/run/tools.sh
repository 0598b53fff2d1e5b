# Finds or installs the tools that the tests need.

no_redis="redis-server is missing: install it with your system's package manager"
no_faketime="libfaketime is missing: install it with your system's package manager"
no_openssl="OpenSSL's headers are missing: install libssl-dev and pkg-config, or their like"
no_openssl_tool="openssl is missing: install it with your system's package manager"
no_chromium="chromium or chromedriver is missing: install chromium and chromium-driver, or their like"
no_tmux="tmux is missing: install it with your system's package manager"
no_nginx="nginx is missing: install it with your system's package manager"
no_haproxy="haproxy is missing: install it with your system's package manager"
no_cc="a C compiler is missing: install gcc with your system's package manager"

# Prints the failure and ends the run.
fail() {
    printf '\n!!! failed: %s\n' "$1" >&2
    exit 1
}

# Reads a log, and prints the number of tests that have passed.
count_passed() {
    awk '/^test result: ok/ { sum += $4 } END { print sum + 0 }' "$1"
}

tools() {
    has cargo || PATH="$HOME/.cargo/bin:$PATH"
    has cargo || fail "cargo is missing: install Rust"
    cargo fmt --version || fail "rustfmt is missing: rustup component add rustfmt"
    cargo clippy --version || fail "clippy is missing: rustup component add clippy"
    has redis-server || install redis-server redis || fail "$no_redis"
    redis-server --version || fail "$no_redis"
    # For processes with different clocks, which a test can only start on Linux.
    [ "$(uname)" != Linux ] || has faketime || install faketime libfaketime || fail "$no_faketime"
    # For a server with a stepped clock. The tests compile a small preload library.
    [ "$(uname)" != Linux ] || has cc || install_cc || fail "$no_cc"
    # For the tests of the market's page.
    has chromedriver || install_chromium || fail "$no_chromium"
    chromedriver --version || fail "$no_chromium"
    # For services behind proxies. Debian installs the proxies in /usr/sbin, which may not be in the PATH.
    has_server nginx || install nginx-light nginx || fail "$no_nginx"
    [ -z "$is_night" ] || has_server haproxy || install haproxy haproxy || fail "$no_haproxy"
    # For the tests of the command line in a terminal.
    has tmux || install tmux tmux || fail "$no_tmux"
    # For the certificates of the matrix.
    has openssl || install openssl openssl || fail "$no_openssl_tool"
    # For the feature `tls-native-tls`, which uses OpenSSL on Linux.
    [ "$(uname)" != Linux ] || has_openssl || install_openssl || fail "$no_openssl"
}

has() {
    command -v "$1" >/dev/null
}

has_server() {
    has "$1" || [ -x "/usr/sbin/$1" ]
}

# Debian's gcc only recommends the headers of its C library, and `install` installs no recommended packages.
install_cc() {
    install gcc gcc && install libc6-dev gcc
}

# The driver only starts a browser of the same version.
install_chromium() {
    install chromium chromium && install chromium-driver chromedriver
}

has_openssl() {
    has pkg-config && pkg-config --exists openssl
}

install_openssl() {
    install pkg-config pkgconf && install libssl-dev openssl
}

# Installs a package of Debian, or else of Homebrew.
install() {
    if has apt-get; then
        as_root apt-get update || return
        # Without a runlevel, a package does not start its server.
        as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "$1"
    elif has brew; then
        brew install "$2"
    else
        return 1
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo; then
        # `-n` never waits for a password.
        sudo -n "$@"
    else
        return 1
    fi
}
