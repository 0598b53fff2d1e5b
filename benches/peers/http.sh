# HTTP: the limit in nginx and ours, around the same app and with the same client. run.sh sources this file.
#
# A front is the program that a client talks to. It is the app `alone`, nginx in front of it (`open`, or with
# `limit_conn`), or the app under our layer in `memory` or over `redis`.

http="$into/rust/release/http"
running=

# Downloads and unpacks Debian's nginx without installing it, or else uses the one on the PATH.
nginx_peer() {
    for package in nginx nginx-light nginx-core; do
        "$into/nginx/usr/sbin/nginx" -v && return
        (cd "$into" && apt-get download "$package" && dpkg-deb -x "$package"_*.deb nginx)
    done
    "$into/nginx/usr/sbin/nginx" -v || nginx -v
}

# Sets $nginx to the program of `nginx_peer`.
nginx_path() {
    "$into/nginx/usr/sbin/nginx" -v 2>/dev/null && nginx="$into/nginx/usr/sbin/nginx" || nginx=nginx
}

client() { timeout 100 "$http" "$@" 2>>"$into/http.err"; }

# begin LOG COMMAND: starts a server in the background and sets $pid to its process id.
begin() {
    log=$1; shift
    "$@" >"$log" 2>>"$into/http.err" &
    pid=$!
    running="$running $pid"
}

# end PID SIGNAL: ends a process of `begin` by this signal.
end() {
    kill "-$2" "$1" 2>/dev/null; wait "$1" 2>/dev/null
    running=$(printf '%s \n' "$running" | sed "s/ $1 / /")
}

end_all() {
    for one in $running; do end "$one" TERM; done
}

# `until_logged LOG PATTERN`: waits until the server's log contains the pattern, and fails if the server ends first.
until_logged() {
    until grep -q "$2" "$1" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.05
    done
}

# Starts the app with its limit in STORE, or without one. Like the functions below, it sets $address.
serve() {
    : >"$into/app.log"
    begin "$into/app.log" "$http" serve "$1"
    until_logged "$into/app.log" listening && address=$(sed -n 's/^listening //p' "$into/app.log")
}

# Starts nginx in front of the app, in a separate folder. `open` leaves the limit out of its configuration.
proxy() {
    proxy_port=$(free_port)
    prefix="$into/nginx-$proxy_port"
    mkdir "$prefix"
    left_out='^$'
    [ "$1" = open ] && left_out='limit_conn accounts'
    sed "/$left_out/d; s/@APP@/$address/; s/@PORT@/$proxy_port/" "$here/nginx.conf" >"$prefix/nginx.conf"
    begin "$prefix/log" "$nginx" -p "$prefix" -c "$prefix/nginx.conf"
    until_logged "$prefix/error.log" 'start worker process ' && address="127.0.0.1:$proxy_port"
}

# Starts a front and sets $server_pid to its process id, or prints why it cannot run.
front() {
    : >"$into/http.err"
    case $1 in
        alone) serve none ;;
        memory) serve memory ;;
        redis) serve "$url" ;;
        *) serve none && proxy "$1" ;;
    esac && server_pid=$pid && return
    row "$(title "$1")" "cannot run: $(tail -n 1 "$into/http.err")"
    return 1
}

# Kills the front's server. For nginx this is the worker, which its master replaces. For ours it is the app, which this
# function restarts.
kill_server() {
    if [ "$1" = limit_conn ]; then
        kill -9 "$(sed -n 's/.*start worker process //p' "$prefix/error.log" | tail -n 1)"
    else
        end "$server_pid" KILL
        front "$1"
    fi
}

title() {
    case $1 in
        alone) echo 'app alone' ;;
        open) echo 'nginx' ;;
        limit_conn) echo 'nginx, limit_conn' ;;
        memory) echo 'layer, memory' ;;
        redis) echo 'layer, Redis' ;;
    esac
}

# row CELL...: prints a row of a table.
row() {
    printf '|'
    printf ' %s |' "$@"
    printf '\n'
}

rates() {
    say "measuring requests"
    row 'HTTP' 'requests/s, 1 connection' '× alone' 'requests/s, 16 connections' '× alone'
    printf '|---|---|---|---|---|\n'
    names=
    addresses=
    for name in alone open limit_conn memory redis; do
        front "$name" || continue
        names="$names $name"
        addresses="$addresses $address"
    done
    client rates "$seconds" $addresses >"$into/rates"
    for name in $names; do
        read -r figures && row "$(title "$name")" $figures
    done <"$into/rates"
    end_all
}

# contended FRONT PATH TITLE: prints one row of contention.
contended() {
    say "measuring contention: $3"
    front "$1" && row "$3" $(client contend "$address" "$2")
    end_all
}

contention() {
    row '50 requests of one account' 'admitted when each tries once' 'most at once' \
        'total ms (ideal 1,000)' 'requests' 'inversions of 1,225'
    printf '|---|---|---|---|---|---|\n'
    contended limit_conn /stream 'nginx, limit_conn: retrying after 10 ms'
    contended memory /stream 'layer, memory: retrying after 10 ms'
    contended redis /stream 'layer, Redis: retrying after 10 ms'
    contended memory /queue/stream 'layer, memory: waiting'
    contended redis /queue/stream 'layer, Redis: waiting'
}

# hold_five ACCOUNT: holds five bodies in the background process $holder. Sets $sixth to the status of the sixth
# request.
hold_five() {
    : >"$into/hold"
    begin "$into/hold" "$http" hold "$address" "$1"
    holder=$pid
    until_held
    read -r _ _ sixth <"$into/hold"
}

# Prints one row of kills: of the client, then of the server.
killed() {
    say "measuring kills: $1"
    front "$1" || { end_all; return; }
    hold_five client
    end "$holder" KILL
    after_client=$(client wait "$address" client)
    hold_five server
    kill_server "$1"
    after_server=$(client wait "$address" server)
    end "$holder" KILL
    # A second front beside the first, so that two servers share one limit or not.
    first=$address
    front "$1" && row "$(title "$1")" "$sixth" "$after_client" "$after_server" \
        "$(client fleet "$first" "$address")"
    end_all
}

kills() {
    row 'five bodies that go on' 'the sixth request' 'free after the client is killed, s' \
        'free after the server is killed, s' 'admitted by two servers, limit 5'
    printf '|---|---|---|---|---|\n'
    for name in limit_conn memory redis; do killed "$name"; done
}

over_http() {
    rm -rf "$into"/nginx-[0-9]*
    nginx_path
    rates
    printf '\n'
    contention
    printf '\n'
    kills
}
