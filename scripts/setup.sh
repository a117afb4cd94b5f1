#!/usr/bin/env bash
# Installs what building and testing Diptych needs, and nothing that is already there.
#
#   scripts/setup.sh [build|shaders] [--check] [--quiet]
#
# Debian 12, Debian 13 and Ubuntu 24.04: through apt, as root or with sudo. Other systems: says what is missing and
# fails. When nothing is missing it changes nothing and takes a fraction of a second, so every make target starts with
# it. Exit status: 0 nothing is missing (any more), 1 something is, 2 wrong use.
set -euo pipefail

readonly RUST_MINIMUM=1.89
# Older releases of Mesa's software driver (lavapipe) lack features that the Vulkan tests execute.
readonly MESA_MINIMUM=25.0
readonly BACKPORTS_SUITE=bookworm-backports
readonly BACKPORTS_FILE=/etc/apt/sources.list.d/diptych-backports.sources

PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:/usr/sbin:/sbin"

mode=build
system=other

main() {
    local check=no quiet=no argument missing
    for argument in "$@"; do
        case $argument in
            build | shaders) mode=$argument ;;
            --check) check=yes ;;
            --quiet) quiet=yes ;;
            -h | --help)
                usage
                return 0
                ;;
            *)
                usage >&2
                return 2
                ;;
        esac
    done

    system=$(find_system)
    if [ "$check" = yes ]; then
        report
        return
    fi

    missing=$(missing_packages)
    if [ -n "$missing" ]; then
        # shellcheck disable=SC2086 # a list of package names, one word each
        install_packages $missing
    fi
    check_rust
    [ "$quiet" = yes ] || say "nothing is missing"
}

usage() {
    cat <<'END'
usage: scripts/setup.sh [build|shaders] [--check] [--quiet]

  build     what building, testing and running needs (the default)
  shaders   that, and what compiling the shaders again needs ('make shaders')
  --check   report what is there and what is missing, and change nothing
  --quiet   say nothing when nothing is missing
END
}

# ---------------------------------------------------------------------------------------------------------------------
# What is needed. One row for each need: the apt packages that bring it | the function that looks for it | its purpose.

needs() {
    cat <<'END'
gcc,libc6-dev|has_linker|C compiler and libraries (Rust links with them)
make|has_make|make
ca-certificates|has_certificates|certificates (cargo downloads over HTTPS)
libvulkan1|has_vulkan_loader|Vulkan loader
mesa-vulkan-drivers|has_mesa|Mesa's Vulkan drivers (lavapipe runs the tests without a GPU)
vulkan-validationlayers|has_validation_layers|Vulkan validation layers
clang-19|has_clang|clang (compiles the HIP kernels)
lld-19|has_lld|lld (links the HIP kernels)
llvm-19|has_objdump|llvm-objdump (reads the HIP kernels' code objects)
END
    if [ "$mode" = shaders ]; then
        cat <<'END'
g++|has_cxx|C++ compiler (builds the shader compiler)
cmake|has_cmake|cmake (builds the shader compiler)
ninja-build|has_ninja|ninja (builds the shader compiler)
python3|has_python|python3 (builds the shader compiler)
git|has_git|git (the shader compiler's build looks for it)
END
    fi
}

# Prints the packages of every need that is not met, in one line.
missing_packages() {
    local packages probe missing=""
    while IFS='|' read -r packages probe _; do
        "$probe" || missing+=" ${packages//,/ }"
    done < <(needs)
    echo "${missing# }"
}

has() { command -v "$1" >/dev/null 2>&1; }

has_linker() {
    local start
    has cc && start=$(cc -print-file-name=crt1.o 2>/dev/null) && [ -f "$start" ]
}

has_make() { has make; }

has_certificates() {
    any_file "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem
}

has_vulkan_loader() {
    if has ldconfig && ldconfig -p 2>/dev/null | grep -F 'libvulkan.so.1 ' >/dev/null; then
        return 0
    fi
    any_file /usr/lib/libvulkan.so.1 /usr/lib64/libvulkan.so.1 /usr/lib/*/libvulkan.so.1 /usr/local/lib/libvulkan.so.1
}

# The version can be asked for where dpkg manages the package; elsewhere the driver's presence has to do.
has_mesa() {
    if [ "$system" = other ]; then
        any_file /usr/share/vulkan/icd.d/lvp_icd*.json /usr/local/share/vulkan/icd.d/lvp_icd*.json \
            /etc/vulkan/icd.d/lvp_icd*.json
        return
    fi
    local state version
    read -r state version < <(dpkg-query --show --showformat '${db:Status-Status} ${Version}\n' \
        "mesa-vulkan-drivers:$(dpkg --print-architecture)" 2>/dev/null) || return 1
    [ "$state" = installed ] && dpkg --compare-versions "$version" ge "$MESA_MINIMUM"
}

has_validation_layers() {
    local layer=vulkan/explicit_layer.d/VkLayer_khronos_validation.json
    any_file "/usr/share/$layer" "/usr/local/share/$layer" "/etc/$layer" "${VULKAN_SDK:-}/share/$layer"
}

# Debian and Ubuntu name LLVM's tools by version; elsewhere the plain names serve from clang 19 on.
has_clang() {
    has clang-19 && return
    [ "$system" = other ] && has clang && [ "$(clang -dumpversion | cut -d. -f1)" -ge 19 ]
}

has_lld() { has ld.lld-19 || { [ "$system" = other ] && has ld.lld; }; }

has_objdump() { has llvm-objdump-19 || { [ "$system" = other ] && has llvm-objdump; }; }

has_cxx() { has c++; }

has_cmake() { has cmake; }

has_ninja() { has ninja; }

has_python() { has python3; }

has_git() { has git; }

any_file() {
    local file
    for file in "$@"; do
        [ -f "$file" ] && return
    done
    return 1
}

rust_version() { cargo --version 2>/dev/null | cut -d' ' -f2; }

has_rust() {
    local version
    has cargo && version=$(rust_version) && [ -n "$version" ] || return 1
    [ "$(printf '%s\n' "$RUST_MINIMUM" "$version" | sort -V | head -n 1)" = "$RUST_MINIMUM" ]
}

check_rust() {
    has_rust && return
    if ! has cargo; then
        say "cargo was not found."
    elif [ -z "$(rust_version || true)" ]; then
        say "$(command -v cargo) does not work:"
        cargo --version >&2 || true
    else
        say "cargo $(rust_version) is too old."
    fi
    die "Diptych needs Rust $RUST_MINIMUM or later. Get it with rustup (https://rustup.rs; Debian 13 and Ubuntu 24.04" \
        "have a package 'rustup'), run 'rustup default stable', then try again."
}

# ---------------------------------------------------------------------------------------------------------------------
# Reporting.

report() {
    local packages probe purpose failed=0
    say "looking for what 'scripts/setup.sh $mode' would install on $(system_name)"
    while IFS='|' read -r packages probe purpose; do
        if "$probe"; then
            printf '  ok       %s\n' "$purpose"
        else
            printf '  missing  %s: %s\n' "$purpose" "${packages//,/ }"
            failed=1
        fi
    done < <(needs)
    if has_rust; then
        printf '  ok       Rust %s or later: %s\n' "$RUST_MINIMUM" "$(rust_version)"
    else
        printf '  missing  Rust %s or later: see https://rustup.rs\n' "$RUST_MINIMUM"
        failed=1
    fi
    return $failed
}

say() { printf 'setup: %s\n' "$*"; }

die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# ---------------------------------------------------------------------------------------------------------------------
# The system, and its package manager.

os_release() (
    # shellcheck source=/dev/null
    [ ! -r /etc/os-release ] || . /etc/os-release
    echo "${!1:-}"
)

system_name() {
    local name
    name=$(os_release PRETTY_NAME)
    echo "${name:-$(uname -s)}"
}

# Prints debian-12, debian-13, ubuntu-24.04, or other.
find_system() {
    local system
    system="$(os_release ID)-$(os_release VERSION_ID)"
    case $system in
        debian-12 | debian-13 | ubuntu-24.04)
            if has apt-get && has dpkg-query; then
                echo "$system"
                return
            fi
            ;;
    esac
    echo other
}

install_packages() {
    local packages=("$@") plain=() mesa=no package missing
    if [ "$system" = other ]; then
        say "this script installs packages on Debian 12, Debian 13 and Ubuntu 24.04; this is $(system_name)."
        say "Missing here, by the names of Debian's packages: ${packages[*]}"
        die "Please install them with your system's package manager, then try again. 'scripts/setup.sh --check' lists" \
            "them with their purpose, 'make TARGET SETUP=no' goes on without them."
    fi
    if [ "$(id -u)" != 0 ] && ! has sudo; then
        say "missing: ${packages[*]}"
        die "Installing them takes root or sudo. Run '$0' as root, or 'make TARGET SETUP=no' to go on without them."
    fi

    say "installing with apt, without recommended packages: ${packages[*]}"
    say "apt-get update"
    apt_get update || say "'apt-get update' reported an error; going on with the package lists that are there"

    for package in "${packages[@]}"; do
        if [ "$package" = mesa-vulkan-drivers ] && [ "$system" = debian-12 ]; then
            mesa=yes
        else
            plain+=("$package")
            check_candidate "$package"
        fi
    done
    [ $mesa = no ] || add_backports
    if [ ${#plain[@]} -gt 0 ]; then
        say "apt-get install ${plain[*]}"
        apt_get install "${plain[@]}" || die "apt-get could not install: ${plain[*]}"
    fi
    if [ $mesa = yes ]; then
        say "apt-get install mesa-vulkan-drivers, from $BACKPORTS_SUITE"
        apt_get install --target-release "$BACKPORTS_SUITE" mesa-vulkan-drivers ||
            die "apt-get could not install mesa-vulkan-drivers from $BACKPORTS_SUITE"
    fi

    hash -r
    missing=$(missing_packages)
    [ -z "$missing" ] || die "still missing after the installation: $missing"
}

apt_get() {
    local command=$1
    shift
    local options=(-q -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0)
    # Nothing that the machine has is removed to make room for what we need: apt stops with an error instead.
    [ "$command" = update ] || options+=(--yes --no-remove --no-install-recommends)
    as_root apt-get "${options[@]}" "$command" "$@" </dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

# Fails, before anything is installed, when the package sources cannot bring a package.
check_candidate() {
    local package=$1 candidate hint=""
    candidate=$(LC_ALL=C apt-cache policy "$package" | sed -n 's/^  Candidate: //p')
    if [ -z "$candidate" ] || [ "$candidate" = "(none)" ]; then
        [ "$system" != ubuntu-24.04 ] || hint=" (is the component 'universe' enabled, and 'noble-updates'?)"
        die "no package source of this machine has '$package'$hint"
    fi
    if [ "$package" = mesa-vulkan-drivers ] && ! dpkg --compare-versions "$candidate" ge "$MESA_MINIMUM"; then
        [ "$system" != ubuntu-24.04 ] || hint=" (is 'noble-updates' enabled?)"
        die "the package sources offer Mesa $candidate; Diptych needs $MESA_MINIMUM or later$hint"
    fi
}

# ---------------------------------------------------------------------------------------------------------------------
# Debian 12 has Mesa 22.3; its backports have 25.0. They come from the mirror that the machine already uses.

add_backports() {
    has_index "Codename: $BACKPORTS_SUITE" && return

    local uri entry signed_by
    # Origin and Label tell Debian's own archive from other sources that name their suite 'bookworm'.
    # shellcheck disable=SC2016 # apt's own placeholders
    IFS='|' read -r uri entry < <(apt-get indextargets --format '$(REPO_URI)|$(SOURCESENTRY)' 'Origin: Debian' \
        'Label: Debian' 'Codename: bookworm' 'Component: main' 'Created-By: Packages' | grep -v '^cdrom:') ||
        die "no package source of this machine serves Debian's suite 'bookworm'; add $BACKPORTS_SUITE by hand"
    uri=${uri%/}
    signed_by=$(signed_by "${entry%:*}" "${entry##*:}" "$uri")

    say "adding Debian's $BACKPORTS_SUITE in $BACKPORTS_FILE; only Mesa, and what it depends on, is installed from it"
    {
        echo "# Added by Diptych's scripts/setup.sh: Mesa $MESA_MINIMUM or later."
        echo "Types: deb"
        echo "URIs: $uri"
        echo "Suites: $BACKPORTS_SUITE"
        echo "Components: main"
        [ -z "$signed_by" ] || echo "Signed-By:$signed_by"
    } | as_root tee "$BACKPORTS_FILE" >/dev/null

    say "apt-get update, for this file"
    apt_get update -o Dir::Etc::SourceList="$BACKPORTS_FILE" -o Dir::Etc::SourceParts=- \
        -o APT::Get::List-Cleanup=0 || true
    if ! has_index "Codename: $BACKPORTS_SUITE"; then
        as_root rm -f "$BACKPORTS_FILE"
        die "$uri has no usable $BACKPORTS_SUITE, so $BACKPORTS_FILE was removed again. Diptych needs Mesa" \
            "$MESA_MINIMUM or later: add a package source that has it (archived suites move to Debian's archive mirror)"
    fi
}

has_index() {
    # shellcheck disable=SC2016 # apt's own placeholder
    [ -n "$(apt-get indextargets --format '$(URI)' 'Created-By: Packages' 'Component: main' "$@")" ]
}

# Prints the Signed-By of the source that serves 'bookworm' from an address: with a leading space, or, where the key
# itself stands in the file, as the lines that it has there. Prints nothing where the source names no key.
signed_by() {
    local file=$1 line=$2 uri=$3
    case $file in
        *.sources)
            awk -v uri="$uri" '
                function finish() {
                    if (!done && has_suite() && has_uri()) {
                        printf "%s", key
                        done = 1
                    }
                    uris = suites = key = field = ""
                }
                function has_suite() { return suites ~ /[ \t](bookworm|(old)*stable)([ \t]|$)/ }
                function has_uri(    n, i, parts) {
                    n = split(uris, parts, /[ \t]+/)
                    for (i = 1; i <= n; i++) {
                        sub(/\/+$/, "", parts[i])
                        if (parts[i] == uri) return 1
                    }
                    return 0
                }
                /^#/ { next }
                /^[ \t]*$/ { finish(); next }
                /^[^ \t]/ {
                    field = tolower(substr($0, 1, index($0, ":") - 1))
                    value = substr($0, index($0, ":") + 1)
                    if (field == "signed-by") { key = value "\n"; next }
                }
                /^[ \t]/ {
                    if (field == "signed-by") { key = key $0 "\n"; next }
                    value = $0
                }
                field == "uris" { uris = uris " " value }
                field == "suites" { suites = suites " " value }
                END { finish() }
            ' "$file"
            ;;
        *) sed -n "${line}s/^[^]]*[[ ]signed-by=\([^] ]*\).*/ \1/p" "$file" ;;
    esac
}

main "$@"
