# The tests of each topology, and the environment that chooses a server and a way to reach it.

build() {
    cargo test --all-features --no-run --test store --test redis --test topology || fail "the tests are not built"
}

# Creates a certificate authority, and a certificate from it for this machine.
certificates() {
    local folder=$logs/certificates log=$logs/certificates.log
    mkdir -p "$folder"
    (cd "$folder" && make_certificates) >"$log" 2>&1 || fail "no certificates: see $log"
}

make_certificates() {
    local key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    openssl req -x509 "${key[@]}" -days 2 -subj "/CN=matrix" -keyout ca-key.pem -out ca.pem &&
        openssl req "${key[@]}" -subj "/CN=127.0.0.1" -keyout server-key.pem -out server.csr &&
        echo "subjectAltName=IP:127.0.0.1" >names &&
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 \
            -extfile names -out server.pem
}

# Runs a command in an environment that selects a server's file and a way to reach it (file, way, command).
reached_by() {
    local file=$1 way=$2 folder=$logs/certificates
    shift 2
    (
        export REDIS_SERVER=$file REDIS_PROTOCOL=${way%-tls}
        if [[ $way == *-tls ]]; then
            export REDIS_CERTIFICATES=$folder SSL_CERT_FILE=$folder/ca.pem
        fi
        "$@"
    )
}

# The tests of `tests/topology/cluster` in which connections are made, lost and replaced. `--brief` skips the others,
# whose results do not depend on the way.
essence=(cluster::{basics::,dying::claims_are_granted,messages::,moving::slots_move,replaced::,start::})

# Runs the tests of a topology. Continues after a failure.
suites() {
    local status=0 cluster=(cluster::) others=(--skip memory:: --skip cluster:: --skip sentinel::)
    [ -z "$brief" ] || cluster=("${essence[@]}")
    case $1 in
        single)
            suite redis the_server_is_the_chosen_one to_one_server || status=1
            suite store conformance:: "${others[@]}" || status=1
            ;;
        cluster)
            suite redis to_a_cluster_are_made || status=1
            suite store cluster:: --skip lock:: || status=1
            suite topology "${cluster[@]}" || status=1
            ;;
        sentinel)
            suite redis to_a_primary_of_sentinels || status=1
            suite store sentinel:: --skip lock:: || status=1
            suite topology sentinel:: stalled:: || status=1
            ;;
    esac
    return "$status"
}

# Runs the tests of a program whose names match.
suite() {
    local test=$1
    shift
    cargo test --all-features --test "$test" -- "$@"
}

# Prints the number of tests that have passed, from their log. Fails if a suite has run none.
passed() {
    ! grep -q '^test result: ok\. 0 passed' "$1" && count_passed "$1"
}

# Prints the tests that have failed, from their log.
failed_tests() {
    grep -E '^test .* FAILED$|^error' "$1" || echo "no test has failed: see $1"
}
