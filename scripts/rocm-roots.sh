#!/usr/bin/env bash
# Unpacks AMD's HIP user space of four generations from Debian's packages, each into a folder of its own.
#
#   scripts/rocm-roots.sh [--to DIR] [ROOT...]        ROOT: 5.2.3, 5.7.1, 6.4.3 or 7.2.4; default: all
#   scripts/rocm-roots.sh --pin [ROOT...]
#
# Nothing is installed, nothing outside DIR is written, and no root rights are needed. scripts/rocm-roots.txt names the
# packages with their hashes. They come from the mirror that the package sources of this machine name for Debian. A root
# whose packages the mirror no longer has is skipped. An interrupted run goes on where it ended; what is there already
# takes no time. Exit status: 0 all roots are there, 1 some are not, 2 wrong use.
set -euo pipefail

readonly DEFAULT_MIRROR=http://deb.debian.org/debian
# Changes with the files that `unpack` makes from the same packages: roots of another layout are made again.
readonly LAYOUT=3
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly APT_HELPER=/usr/lib/apt/apt-helper

here=$(cd "$(dirname "$0")" && pwd)
to=$here/../target/rocm
table=$here/rocm-roots.txt
apt=/etc/apt
mirror=""
downloads=""
pin=no
gone=no
roots=()

main() {
    read_arguments "$@"
    [ -r "$table" ] || die "cannot read $table"
    check_roots
    [ -n "$mirror" ] || mirror=$(find_mirror)
    mirror=${mirror%/}
    check_tools
    mkdir -p "$to" "${downloads:=$to/.downloads}"
    to=$(cd "$to" && pwd)
    downloads=$(cd "$downloads" && pwd)
    exec 9>"$to/.lock"
    flock -n 9 || { say "waiting for another run in $to" && flock 9; }
    use_proxy_of_apt

    local root failed=0
    if [ "$pin" = yes ]; then
        print_rows
        return
    fi
    say "Debian's mirror is $mirror"
    for root in "${roots[@]}"; do
        make_root "$root" || failed=1
    done
    return $failed
}

usage() {
    cat <<END
usage: scripts/rocm-roots.sh [OPTION...] [ROOT...]

  ROOT          a user space to unpack: $(known_roots | paste -sd ' ' -); default: all
  --to DIR      where each gets a folder of its own (default: target/rocm)
  --downloads DIR  where packages are kept (default: .downloads in the folder of --to)
  --mirror URL  the mirror of Debian, an address or a folder (default: the one in this machine's package sources)
  --pin         print the rows of scripts/rocm-roots.txt for the packages that the mirror has now, and unpack nothing
  --table FILE  the table of packages (default: scripts/rocm-roots.txt)
  --apt DIR     the folder of the package sources (default: /etc/apt)

DIR/ROOT/run PROGRAM [ARGUMENT...] then runs a program with that user space; DIR/ROOT/hip is its libamdhip64.
END
}

read_arguments() {
    while [ $# -gt 0 ]; do
        case $1 in
            --to | --mirror | --table | --apt | --downloads)
                [ -n "${2:-}" ] || wrong_use "$1 takes a value"
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --pin) pin=yes ;;
            -h | --help)
                usage
                exit 0
                ;;
            -*) wrong_use "unknown option: $1" ;;
            *) roots+=("$1") ;;
        esac
        shift
    done
}

check_roots() {
    local root
    [ ${#roots[@]} -gt 0 ] || mapfile -t roots < <(known_roots)
    for root in "${roots[@]}"; do
        known_roots | grep -qxF -e "$root" || wrong_use "no such root: $root; there are $(known_roots | paste -sd ' ' -)"
    done
}

check_tools() {
    local tool
    [ "$(uname -sm)" = "Linux x86_64" ] || die "AMD's user space is unpacked for x86-64 Linux only; this is $(uname -sm)"
    [ -n "$(local_folder)" ] || has curl || has wget || [ -x $APT_HELPER ] ||
        die "downloading takes curl or wget, or apt; none of them is there"
    has dpkg-deb || has ar || die "unpacking takes dpkg-deb or ar (package binutils); neither is there"
    for tool in tar sha256sum flock awk; do
        has "$tool" || die "$tool is missing"
    done
    [ $pin = no ] || has xz || die "reading the mirror's index takes xz (package xz-utils); it is missing"
}

has() { command -v "$1" >/dev/null 2>&1; }

say() { printf 'rocm-roots: %s\n' "$*"; }

complain() { printf 'rocm-roots: %s\n' "$*" >&2; }

die() {
    complain "$*"
    exit 1
}

wrong_use() {
    complain "$*"
    usage >&2
    exit 2
}

# ---------------------------------------------------------------------------------------------------------------------
# The table: one row for each package. Columns: root, place, suite, package, SHA-256, path on the mirror.

known_roots() { awk '!/^#/ && NF && !seen[$1]++ { print $1 }' "$table"; }

rows() { awk -v root="$1" '!/^#/ && $1 == root' "$table"; }

# ---------------------------------------------------------------------------------------------------------------------
# The mirror.

# Prints the first address that the package sources name for one of Debian's own suites.
find_mirror() {
    local found
    found=$(
        for file in "$apt/sources.list" "$apt"/sources.list.d/*.list; do
            [ ! -r "$file" ] || lines_of_list "$file"
        done
        for file in "$apt"/sources.list.d/*.sources; do
            [ ! -r "$file" ] || lines_of_stanzas "$file"
        done
    )
    found=$(awk '
        $1 !~ /^(https?|file|copy):\// { next }
        $2 ~ /^((old)*stable|testing|unstable|sid|experimental|bookworm|trixie|forky|duke)(-updates|-backports)?$/ {
            sub(/^copy:/, "file:", $1)
            print $1
            exit
        }' <<<"$found")
    echo "${found:-$DEFAULT_MIRROR}"
}

# Prints address and suite of each line 'deb [OPTIONS] ADDRESS SUITE COMPONENT...' with the component main.
lines_of_list() {
    sed -nE 's/#.*//; s/^[ \t]*deb[ \t]+(\[[^]]*\][ \t]+)?//p' "$1" | awk '
        { for (i = 3; i <= NF; i++) if ($i == "main") { print $1, $2; next } }'
}

# Prints the same for the stanzas of a file in deb822 format.
lines_of_stanzas() {
    awk '
        function has(field, word) { return (value[field] " ") ~ (" " word " ") }
        function finish(    u, s, i, j, n, m) {
            if (has("types", "deb") && has("components", "main") && value["enabled"] !~ /no|false/) {
                n = split(value["uris"], u, " ")
                m = split(value["suites"], s, " ")
                for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) print u[i], s[j]
            }
            split("", value)
        }
        /^#/ { next }
        /^[ \t]*$/ { finish(); next }
        /^[^ \t]/ { field = tolower(substr($0, 1, index($0, ":") - 1)); sub(/^[^:]*:/, "") }
        { gsub(/[ \t]+/, " "); value[field] = value[field] " " $0 }
        END { finish() }
    ' "$1"
}

# Prints the folder that the mirror is; nothing if it is an address of the network.
local_folder() {
    case $mirror in
        file://*) echo "${mirror#file://}" ;;
        file:/*) echo "${mirror#file:}" ;;
        *) [ ! -d "$mirror" ] || echo "$mirror" ;;
    esac
}

# fetch PATH FILE: downloads a file of the mirror. Status: 0 it is there, 1 the mirror does not have it, 2 other failures.
fetch() {
    local folder code output
    folder=$(local_folder)
    if [ -n "$folder" ]; then
        [ -f "$folder/$1" ] || return 1
        cp "$folder/$1" "$2" || return 2
    elif has curl; then
        code=$(curl --silent --show-error --fail --location --retry 3 --connect-timeout 30 --speed-time 60 \
            --speed-limit 1000 --write-out '%{http_code}' --output "$2" "$mirror/$1") && return 0
        [ "$code" != 404 ] && [ "$code" != 410 ] || return 1
        return 2
    elif has wget; then
        code=0
        wget --quiet --tries=3 --timeout=60 --output-document="$2" "$mirror/$1" || code=$?
        [ $code = 0 ] || [ $code = 8 ] || return 2
        [ $code = 0 ]
    else
        output=$(LC_ALL=C $APT_HELPER -q -o Acquire::Retries=3 download-file "$mirror/$1" "$2" 2>&1) && return 0
        [[ $output != *"404 "* ]] || return 1
        complain "$output"
        return 2
    fi
}

# The proxy that apt uses, where the environment names none.
use_proxy_of_apt() {
    local proxy
    [ -z "${http_proxy:-}" ] && has apt-config || return 0
    proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy 2>/dev/null | head -n 1) || return 0
    case $proxy in
        http://*) export http_proxy=$proxy ;;
    esac
}

# ---------------------------------------------------------------------------------------------------------------------
# A root.

# Downloads and unpacks a root unless it is there as the table wants it. It gets its name when it is complete.
make_root() {
    local root=$1 new=$to/.$1.new lacking
    if wanted "$root" | cmp -s - "$to/$root/packages"; then
        if [ ! -x "$to/$root/run" ] || ! cmp -s "$here/rocm-run.sh" "$to/$root/run"; then
            install -m 755 "$here/rocm-run.sh" "$to/$root/.run" && mv "$to/$root/.run" "$to/$root/run" || return 1
        fi
        say "$root is there: $to/$root"
        return 0
    fi
    download_all "$root" || return 1
    say "$root: unpacking"
    rm -rf "$new" "$to/.$root.old"
    unpack "$root" "$new" || { complain "$root: skipped, its packages could not be unpacked"; return 1; }
    lacking=$("$new/run" --list | grep -F 'not found') || true
    [ -z "$lacking" ] || complain "$root: the table names no package with these libraries:" "$lacking"
    [ ! -e "$to/$root" ] || mv "$to/$root" "$to/.$root.old" || return 1
    mv "$new" "$to/$root" || return 1
    rm -rf "$to/.$root.old"
    say "$root: $(du -sm "$to/$root" | cut -f1) MB in $to/$root"
}

# Prints what a root is made from, as its file 'packages' records it.
wanted() {
    echo "layout $LAYOUT"
    rows "$1"
}

download_all() {
    local root=$1 sha path file missing=()
    while read -r _ _ _ _ sha path; do
        file=$downloads/${path##*/}
        download "$root" "$path" "$sha" "$file" || missing+=("${path##*/}")
    done < <(rows "$root")
    [ ${#missing[@]} = 0 ] && return
    complain "$root: skipped, for want of ${missing[*]}"
    if [ $gone = yes ]; then
        complain "Debian replaces packages, in forky and experimental often. 'scripts/rocm-roots.sh --pin $root' prints" \
            "rows with what the mirror has now; put them into scripts/rocm-roots.txt. Or take the packages from an" \
            "archive: '--mirror https://snapshot.debian.org/archive/debian/DAYT000000Z', with a day (20261127) near" \
            "the one in scripts/rocm-roots.txt."
    fi
    return 1
}

# download ROOT PATH SHA256 FILE: brings a package into the cache, unless it is there.
download() {
    local root=$1 path=$2 sha=$3 file=$4 status=0
    if [ -f "$file" ]; then
        has_hash "$file" "$sha" && return
        rm -f "$file"
    fi
    say "$root: ${path##*/}"
    fetch "$path" "$file.part" || status=$?
    case $status in
        0) ;;
        1)
            complain "$root: gone from the mirror: $mirror/$path"
            gone=yes
            ;;
        *) complain "$root: cannot download $mirror/$path" ;;
    esac
    if [ $status = 0 ] && ! has_hash "$file.part" "$sha"; then
        complain "$root: refused, its SHA-256 is not the one in the table: $mirror/$path"
        status=1
    fi
    if [ $status = 0 ]; then
        mv "$file.part" "$file"
    else
        rm -f "$file.part"
    fi
    return $status
}

has_hash() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

# unpack ROOT FOLDER: makes a root from packages in the cache.
unpack() {
    local root=$1 new=$2 place package path files=$2/.files library
    mkdir -p "$new"/{bin,lib,lib64,more} || return 1
    while read -r _ place _ package _ path; do
        mkdir "$files" && extract "$downloads/${path##*/}" "$files" || return 1
        case $place in
            amd) gather "$files" "$new/lib" ;;
            libc) gather "$files" "$new/lib64" ;;
            more) gather "$files" "$new/more/$package" ;;
            bin) gather_programs "$files" "$new/bin" ;;
            tree) gather_tree "$files" "$new/tree" ;;
            *) die "no such place in the table: $place" ;;
        esac && rm -rf "$files" || return 1
    done < <(rows "$root")

    library=$(find "$new/lib" -name 'libamdhip64.so.?' -printf '%f\n')
    [ -n "$library" ] || { complain "$root: no libamdhip64.so.N in its packages"; return 1; }
    ln -s "lib/$library" "$new/hip" &&
        echo "$(needed_glibc "$new") $(own_glibc "$new")" >"$new/glibc" &&
        install -m 755 "$here/rocm-run.sh" "$new/run" &&
        wanted "$root" >"$new/packages"
}

# extract PACKAGE FOLDER: the files of a package.
extract() {
    local member
    if has dpkg-deb; then
        dpkg-deb --fsys-tarfile "$1" | tar -x --no-same-owner -C "$2"
        return
    fi
    member=$(ar t "$1" | grep '^data\.tar')
    case $member in
        data.tar.xz) ar p "$1" "$member" | xz -dc ;;
        data.tar.zst) ar p "$1" "$member" | zstd -dc ;;
        data.tar.gz) ar p "$1" "$member" | gzip -dc ;;
        *) ar p "$1" "$member" ;;
    esac | tar -x --no-same-owner -C "$2"
}

# gather FILES FOLDER: moves the libraries of a package, without its documents, headers and tools, into one folder.
# A symbolic link there names the library next to it.
gather() {
    local file target folders=()
    mkdir -p "$2"
    for file in "$1"/{,usr/}lib/x86_64-linux-gnu "$1"/{,usr/}lib64 "$1"/usr/lib/llvm-*/lib; do
        [ ! -d "$file" ] || [ -L "$file" ] || folders+=("$file")
    done
    [ ${#folders[@]} -gt 0 ] || return 0
    find "${folders[@]}" -maxdepth 1 -type f -name '*.so*' -exec mv -t "$2" {} + || return 1
    while IFS= read -r file; do
        target=$(readlink "$file")
        [ -e "$2/${file##*/}" ] || [ "${target##*/}" = "${file##*/}" ] ||
            ln -s "${target##*/}" "$2/${file##*/}" || return 1
    done < <(find "${folders[@]}" -maxdepth 1 -type l -name '*.so*')
}

# gather_programs FILES FOLDER: moves the programs of a package, without scripts.
gather_programs() {
    local file
    for file in "$1"/usr/bin/*; do
        [ "$(head -c 4 "$file")" != $'\x7fELF' ] || mv "$file" "$2" || return 1
    done
}

# gather_tree FILES FOLDER: moves the files of a package as they lie, without documents and without kernels that are
# files of their own for other cards than gfx900 and gfx906.
gather_tree() {
    rm -rf "$1"/usr/share/{doc,man,lintian,bug,locale} || return 1
    find "$1" -type f \( -name '*gfx[!9]*' -o -name '*gfx9[!0]*' -o -name '*gfx90[!06]*' \) -delete || return 1
    mkdir -p "$2" && cp -al "$1/." "$2"
}

# Prints the N of the newest GLIBC_2.N that the libraries of a root ask for, other than glibc's own.
needed_glibc() {
    local libraries
    mapfile -d '' -t libraries < <(find "$1/lib" "$1/more" -type f -print0)
    { LC_ALL=C grep -aohE 'GLIBC_2\.[0-9]+' "${libraries[@]}" || echo .0; } | sed 's/.*\.//' | sort -un | tail -n 1
}

# Prints the N of the glibc 2.N in a root; 0 where it has none.
own_glibc() {
    { LC_ALL=C grep -saoE 'release version 2\.[0-9]+' "$1/lib64/libc.so.6" || echo .0; } | sed 's/.*\.//; q'
}

# ---------------------------------------------------------------------------------------------------------------------
# Pinning anew.

# Prints the rows of the roots with hash and path of the packages that the mirror has now.
print_rows() {
    local suite root old=$downloads/rows index=$downloads/index failed=0
    for root in "${roots[@]}"; do rows "$root"; done >"$old"
    : >"$index"
    while read -r suite; do
        fetch "dists/$suite/main/binary-amd64/Packages.xz" "$downloads/Packages.xz" ||
            die "cannot download the index of $suite from $mirror"
        check_signature "$suite" "$downloads/Packages.xz"
        { echo "Suite: $suite" && xz -dc "$downloads/Packages.xz"; } >>"$index"
    done < <(awk '!seen[$3]++ { print $3 }' "$old")
    awk '
        FNR == NR { row[++rows] = $0; next }
        /^Suite: / { suite = $2 }
        /^Package: / { package = $2 }
        /^Filename: / { path[suite, package] = $2 }
        /^SHA256: / { sha[suite, package] = $2 }
        END {
            for (i = 1; i <= rows; i++) {
                split(row[i], column)
                suite = column[3]
                package = column[4]
                if ((suite, package) in path) {
                    print column[1], column[2], suite, package, sha[suite, package], path[suite, package]
                } else {
                    print "rocm-roots: " suite " has no package " package " any more" >"/dev/stderr"
                    missing = 1
                }
            }
            exit missing
        }' "$old" "$index" || failed=1
    rm -f "$old" "$index" "$downloads"/{Packages.xz,InRelease}
    return $failed
}

# check_signature SUITE INDEX: fails unless Debian's archive signed this index, and says so if that cannot be found out.
check_signature() {
    local release=$downloads/InRelease sha
    if ! has gpgv || [ ! -r $KEYRING ]; then
        complain "$1: its signature was not checked, which takes gpgv and $KEYRING"
    elif ! fetch "dists/$1/InRelease" "$release"; then
        complain "$1: its signature was not checked, the mirror has none"
    else
        gpgv --quiet --keyring $KEYRING "$release" 2>/dev/null || die "$1: the signature of $mirror/dists/$1 is wrong"
        sha=$(sha256sum "$2" | cut -d' ' -f1)
        awk -v sha="$sha" '/^SHA256:/ { on = 1; next } /^[^ ]/ { on = 0 }
            on && $1 == sha && $3 == "main/binary-amd64/Packages.xz" { found = 1 } END { exit !found }' "$release" ||
            die "$1: its index is not the one that Debian's archive signed; the mirror may be changing, try again"
    fi
}

main "$@"
