# shellcheck shell=bash
# Shared by scripts/demo, test, bench and companions: set-up of the machine, build, and a private
# PostgreSQL server that nobody else sees. To be sourced.
#
# Environment, all optional:
#   PG_CONFIG   pg_config of the PostgreSQL to use: nothing of PostgreSQL is then installed
#   PG_MAJOR    or only its major version, 15 to 18
#   TMPDIR      where private servers live (default /tmp); a benchmark wants a real disk there

set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C.UTF-8 # messages and decimal points that can be parsed

PGRX_VERSION=0.18.1 # the version that Cargo.toml pins: pgrx and cargo-pgrx must be equal
OLDEST_PG=15
NEWEST_PG=18

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
TOOLS=$TARGET/tools
# cargo looks for `cargo pgrx` in this order; a fresh toolchain may not be on the PATH at all.
export PATH="$TOOLS/bin:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# ---------------------------------------------------------------- talking, running, cleaning up

# Progress goes to stderr: stdout is the result.
say() { printf '%s\n' "$*" >&2; }
die() {
    say "$(basename "$0"): $*"
    exit 1
}

heading() {
    local bold='' plain=''
    if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
    printf '\n%s== %s%s\n' "$bold" "$*" "$plain"
}

RUNNING='' # process ID of the command that `run` waits for

# Runs a command and passes its status on. Bash handles a signal only after its foreground command ends, but
# at once while it waits for a background one: so Ctrl-C or a SIGTERM ends the script, and the command with it.
run() {
    local status=0
    "$@" <&0 &
    RUNNING=$!
    wait "$RUNNING" || status=$?
    RUNNING=''
    return "$status"
}

AT_EXIT=() # functions, run last first

at_exit() { AT_EXIT=("$1" "${AT_EXIT[@]}"); }

clean_up() {
    local status=$? action
    trap '' INT TERM HUP # a second Ctrl-C must not leave a server behind
    if [[ $RUNNING ]]; then
        kill_tree "$RUNNING"
        wait "$RUNNING" 2>/dev/null || true
    fi
    if ((status > 128)); then rm -f "$STEP_LOG"; fi # interrupted; that of a failed step stays
    for action in "${AT_EXIT[@]}"; do "$action" || true; done
    exit "$status"
}

# A cargo that is killed alone leaves its compilers at work.
kill_tree() {
    local child
    for child in $(cat "/proc/$1"/task/*/children 2>/dev/null || true); do kill_tree "$child"; done
    kill "$1" 2>/dev/null || true
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

STEP_LOG=''

# step "What, and how long it takes" command...: keeps the output in a file and shows its end on failure.
step() {
    local what=$1 start=$SECONDS
    shift
    STEP_LOG=$(mktemp "${TMPDIR:-/tmp}/snowflake_id-step.XXXXXX")
    say "-- $what"
    if ! run "$@" >"$STEP_LOG" 2>&1; then
        tail -n 40 "$STEP_LOG" >&2
        die "failed: $* (all of its output: $STEP_LOG)"
    fi
    rm -f "$STEP_LOG"
    if ((SECONDS - start >= 5)); then say "   done in $((SECONDS - start)) s"; fi
}

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# ---------------------------------------------------------------- set-up

# set_up [PACKAGE...]: leaves PG_MAJOR, PG_CONFIG, BIN and a working `cargo pgrx`; installs what is missing,
# the given packages included.
set_up() {
    cd "$REPO"
    command -v cargo >/dev/null || die "cargo not found: install Rust first, as from https://rustup.rs"
    choose_postgres
    install_packages build-essential pkg-config libssl-dev libclang-dev "$@"
    BIN=$("$PG_CONFIG" --bindir)
    install_cargo_pgrx
    configure_pgrx
    say "-- PostgreSQL $("$PG_CONFIG" --version | cut -d' ' -f2), $(cargo --version), cargo-pgrx $PGRX_VERSION"
}

# Sets PG_MAJOR and PG_CONFIG, and installs that PostgreSQL if it is not there.
choose_postgres() {
    if [[ ${PG_CONFIG:-} ]]; then
        PG_MAJOR=$("$PG_CONFIG" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
    else
        PG_MAJOR=${PG_MAJOR:-$(newest_installed_postgres)}
        PG_MAJOR=${PG_MAJOR:-$(postgres_from_apt)}
        PG_CONFIG=$(debian_pg_config "$PG_MAJOR")
    fi
    ((PG_MAJOR >= OLDEST_PG && PG_MAJOR <= NEWEST_PG)) ||
        die "PostgreSQL $PG_MAJOR is not among $OLDEST_PG to $NEWEST_PG"
    if ! has_server_and_headers "$PG_CONFIG"; then
        [[ $PG_CONFIG == "$(debian_pg_config "$PG_MAJOR")" ]] || die "no server or no headers beside $PG_CONFIG"
        install_postgres
    fi
    export PG_MAJOR PG_CONFIG
}

# has_server_and_headers PG_CONFIG
has_server_and_headers() {
    [[ -x $1 && -x $("$1" --bindir)/postgres && -f $("$1" --includedir-server)/postgres.h ]]
}

debian_pg_config() { echo "/usr/lib/postgresql/$1/bin/pg_config"; }

newest_installed_postgres() {
    local major
    for ((major = NEWEST_PG; major >= OLDEST_PG; major--)); do
        if has_server_and_headers "$(debian_pg_config "$major")"; then
            echo "$major"
            return
        fi
    done
}

# The version that this release of Debian or Ubuntu calls `postgresql`, brought into the range.
postgres_from_apt() {
    local major
    command -v apt-get >/dev/null || die "no PostgreSQL $OLDEST_PG to $NEWEST_PG with headers found: set PG_CONFIG"
    major=$(apt_default_postgres)
    if [[ ! $major ]]; then
        apt_update
        major=$(apt_default_postgres)
    fi
    [[ $major ]] || die "apt offers no PostgreSQL: set PG_CONFIG"
    echo $((major < OLDEST_PG ? OLDEST_PG : major > NEWEST_PG ? NEWEST_PG : major))
}

apt_default_postgres() {
    { apt-cache depends postgresql 2>/dev/null || true; } |
        sed -nE '/^ *Depends: postgresql-[0-9]+$/ { s/.*-//p; q }'
}

apt_update() { step "Reading the package lists, a few seconds" as_root apt-get update; }

# Debian would create and start a cluster `main` along with the server. Nobody asked for one, so that is
# switched off for the time of the installation.
install_postgres() {
    install_packages postgresql-common
    apt_has "postgresql-$PG_MAJOR" || apt_update
    if ! apt_has "postgresql-$PG_MAJOR"; then
        # This release of Debian or Ubuntu has another version: Debian's script adds the PostgreSQL project's
        # own repository, once somebody presses Enter.
        install_packages ca-certificates
        step "Adding the package repository apt.postgresql.org, for PostgreSQL $PG_MAJOR" \
            as_root /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh <<<''
    fi
    at_exit restore_createcluster_conf
    as_root cp -p "$CREATECLUSTER_CONF" "$CREATECLUSTER_CONF.before-snowflake_id"
    as_root pg_conftool "$CREATECLUSTER_CONF" set create_main_cluster off
    install_packages "postgresql-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR"
    restore_createcluster_conf
}

CREATECLUSTER_CONF=/etc/postgresql-common/createcluster.conf

restore_createcluster_conf() {
    if [[ -e $CREATECLUSTER_CONF.before-snowflake_id ]]; then
        as_root mv "$CREATECLUSTER_CONF.before-snowflake_id" "$CREATECLUSTER_CONF"
    fi
}

apt_has() { [[ $(apt-cache policy "$1" 2>/dev/null) == *"Candidate: "[0-9]* ]]; }

# Installs those of the named packages that are missing.
install_packages() {
    local package missing=()
    if ! command -v dpkg-query >/dev/null; then
        say "-- Not Debian or Ubuntu: if a step fails, install what matches these packages: $*"
        return
    fi
    for package in "$@"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    ((EUID == 0)) || command -v sudo >/dev/null || die "as root, run: apt-get install ${missing[*]}"
    for package in "${missing[@]}"; do
        if ! apt_has "$package"; then
            apt_update
            break
        fi
    done
    step "Installing ${missing[*]}: up to a few minutes, once" \
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# A cargo-pgrx of another version may serve other projects: it stays, and ours goes to a folder of its own.
install_cargo_pgrx() {
    local root=()
    case $(cargo pgrx --version 2>/dev/null) in
    "cargo-pgrx $PGRX_VERSION") return ;;
    cargo-pgrx*) root=(--root "$TOOLS") ;;
    esac
    step "Building cargo-pgrx $PGRX_VERSION: about 4 minutes on 2 cores, once" \
        cargo install cargo-pgrx --version "$PGRX_VERSION" --locked "${root[@]}"
}

# cargo-pgrx reads from its configuration which pg_config belongs to a major version. An entry that is there
# already stays as it is; where it names another server than ours, the environment outranks it for this run.
configure_pgrx() {
    local config=${PGRX_HOME:-$HOME/.pgrx}/config.toml entry=''
    if [[ -e $config ]]; then entry=$(sed -nE "s/^pg$PG_MAJOR *= *[\"'](.*)[\"'].*/\1/p" "$config"); fi
    if [[ ! $entry ]]; then
        step "Telling cargo-pgrx about PostgreSQL $PG_MAJOR" \
            cargo pgrx init "--pg$PG_MAJOR=$PG_CONFIG" --no-run
    elif [[ $entry != "$PG_CONFIG" ]]; then
        export PGRX_PG_CONFIG_PATH=$PG_CONFIG
    fi
}

# ---------------------------------------------------------------- pg_partman

PARTMAN=$TOOLS/pg_partman
# Both ends of what is documented: the first series with a time encoder, and the newest that Debian has.
PARTMAN_PACKAGES=(trixie/postgresql-17-partman forky/postgresql-18-partman)

# Prints the folder with pg_partman's scripts, one a version, and fetches them first if they are not there.
# They are plain SQL, the same for every PostgreSQL: a test runs them, and nothing is installed. (The packages'
# library is a background worker, which calls that SQL by the clock.)
fetch_partman() {
    local lock
    mkdir -p "$TOOLS"
    exec {lock}>"$PARTMAN.lock"
    flock "$lock" # two tests may ask at once
    if [[ ! -d $PARTMAN ]]; then unpack_partman; fi
    exec {lock}>&-
    echo "$PARTMAN"
}

unpack_partman() {
    local work=$PARTMAN.new package archive name script
    package=postgresql-${PG_MAJOR:-$(newest_installed_postgres)}-partman
    rm -rf "$work"
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/packages" "$work/scripts"
    if command -v dpkg-deb >/dev/null && debian_archive >"$work/apt/debian.sources"; then
        partman_apt "$work" update
        (cd "$work/packages" && partman_apt "$work" download "${PARTMAN_PACKAGES[@]#*/}")
    elif apt_has "$package"; then
        # Not Debian, but maybe the PostgreSQL project's own repository.
        (cd "$work/packages" && step "Fetching pg_partman" apt-get download "$package")
    fi
    for archive in "$work/packages"/*.deb; do
        [[ -e $archive ]] || die "pg_partman cannot be had: its tests need Debian's package, or $package 5.2 or later from another repository of apt's"
        name=$(basename "$archive" .deb)
        dpkg-deb -x "$archive" "$work/packages/$name"
        # A script that installs from nothing has no second version in its name.
        script=$(find "$work/packages/$name" -name 'pg_partman--*.sql' ! -name 'pg_partman--*--*.sql')
        [[ -f $script ]] || die "$name does not have the one script that was expected: $script"
        cp "$script" "$work/scripts"
    done
    mv "$work/scripts" "$PARTMAN"
    rm -rf "$work"
}

# An entry for apt: the releases that have pg_partman, from the archive that this machine takes its Debian from.
debian_archive() {
    local uri
    uri=$(debian_uri)
    if [[ ! $uri ]]; then
        apt_update # apt knows whose archive it is only after that
        uri=$(debian_uri)
    fi
    [[ $uri ]] || return 1
    printf '%s\n' 'Types: deb' "URIs: $uri" "Suites: ${PARTMAN_PACKAGES[*]%/*}" 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg'
}

debian_uri() {
    # shellcheck disable=SC2016 # apt's variable
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' |
        sort -u | head -n 1
}

# partman_apt FOLDER COMMAND...: apt-get with that entry alone, its lists and cache in the folder.
partman_apt() {
    local folder=$1
    shift
    step "Fetching pg_partman from Debian (apt-get $1): about 10 seconds, once" apt-get "$@" \
        -o "Dir::Etc::SourceList=$folder/apt/debian.sources" -o Dir::Etc::SourceParts=- \
        -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache" \
        -o APT::Sandbox::User= -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
}

# ---------------------------------------------------------------- build

# Is the PostgreSQL's library folder one that only root can write to?
install_needs_root() { ((EUID != 0)) && [[ ! -w $("$PG_CONFIG" --pkglibdir) ]]; }

build_and_install() {
    local sudo=()
    if install_needs_root; then sudo=(--sudo); fi
    step "Building snowflake_id in release mode and installing it into $("$PG_CONFIG" --pkglibdir): about 3 minutes the first time" \
        cargo pgrx install --release --pg-config "$PG_CONFIG" --no-default-features --features "pg$PG_MAJOR" "${sudo[@]}"
}

# ---------------------------------------------------------------- a private server

POSTGRES='' # the server's program, where it is another than that in $BIN
SERVER_DIR='' # data, socket and log of the private server; empty while there is none

# PostgreSQL refuses to run as root, so root hands over to the user that Debian's package made for it.
as_server_user() {
    if ((EUID == 0)); then
        (cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$@")
    else
        "$@"
    fi
}

# start_server ['setting = value'...]: reachable through a Unix socket in a temporary folder, and nowhere else.
# psql, pgbench and the like find it through the environment; it goes away when the script ends.
start_server() {
    local data name
    SERVER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/snowflake_id.XXXXXX")
    at_exit stop_server
    : >"$SERVER_DIR/server.log"
    if ((EUID == 0)); then chown -R postgres: "$SERVER_DIR"; fi
    data=$SERVER_DIR/data
    say "-- Starting a private PostgreSQL $PG_MAJOR in $SERVER_DIR"

    # Settings of the caller's own servers must not leak in.
    for name in $(compgen -e PG); do
        [[ $name == PG_* || $name == PGRX* ]] || unset "$name"
    done
    # In the foreground: an interrupt waits until it is clear whether there is a server to stop.
    as_server_user "$BIN/initdb" -D "$data" -U postgres -A trust -E UTF8 --no-locale --no-sync \
        >"$SERVER_DIR/server.log" 2>&1 || server_failed
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$SERVER_DIR'" "$@" >>"$data/postgresql.conf"
    as_server_user "$BIN/pg_ctl" -D "$data" -p "${POSTGRES:-$BIN/postgres}" -l "$SERVER_DIR/server.log" -w -s start ||
        server_failed
    export PGHOST=$SERVER_DIR PGPORT=5432 PGUSER=postgres PGDATABASE=postgres PGTZ=UTC
}

server_failed() {
    tail -n 20 "$SERVER_DIR/server.log" >&2
    die "the private PostgreSQL did not start"
}

# The data is thrown away, so there is nothing to flush: immediate.
stop_server() {
    [[ $SERVER_DIR ]] || return 0
    if [[ -e $SERVER_DIR/data/postmaster.pid ]]; then
        as_server_user "$BIN/pg_ctl" -D "$SERVER_DIR/data" -m immediate -w -s stop || true
    fi
    rm -rf "$SERVER_DIR"
    SERVER_DIR=''
    unset PGHOST PGPORT PGUSER PGDATABASE PGTZ
}

# shellcheck disable=SC2120 # SQL comes as -c or on stdin
# SQL for a script: bare values, and the first error ends it.
sql() { "$BIN/psql" -XAtq -v ON_ERROR_STOP=1 "$@"; }

# SQL for a reader: a table.
table() { "$BIN/psql" -Xq -v ON_ERROR_STOP=1 -P footer=off -P pager=off "$@"; }

# time_ms 'statement': what it takes, its commit included, in milliseconds by the server's clock.
time_ms() {
    sql <<SQL
SELECT clock_timestamp() AS started \gset
$1 \g /dev/null
SELECT round(extract(epoch FROM clock_timestamp() - :'started') * 1000, 3);
SQL
}

# Numbers on stdin, one a line; prints their median.
median() {
    sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
