#!/bin/sh
# Runs a program with the HIP user space of the folder that this file lies in: scripts/rocm-roots.sh copies it there, as
# 'run'. The file 'glibc' there has two numbers: the libraries take glibc 2.NEEDED or later; the folder has glibc 2.OWN
# (0: none).

usage() {
    cat <<'TEXT'
usage: run PROGRAM [ARGUMENT...]     run a program with this folder's libamdhip64
       run --link                    print linker options for a program that takes this folder's libraries by itself
       run --list                    print the libraries that AMD's take, and where they are found

  VIRTUAL_KFD_LIBRARY  a library that PROGRAM loads before all others
  DIPTYCH_HIP_LIBRARY  set to this folder's libamdhip64 if it is not set
  ROCM_ROOT_LOADER     'system': the system's glibc. 'own': the glibc in this folder. Default: the system's if it is
                       new enough
  ROCM_ROOT_RUN        set to this program, for a program that starts others, or itself again
TEXT
}

# What PROGRAM is to load is not for the tools that this script calls.
before=${LD_PRELOAD:-}
folders=${LD_LIBRARY_PATH:-}
unset LD_PRELOAD LD_LIBRARY_PATH

root=$(dirname "$(readlink -f "$0")")
read -r needed own <"$root/glibc" || {
    echo "$0: not a folder of scripts/rocm-roots.sh: $root" >&2
    exit 126
}
system=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
system=${system:-0}
mode=${ROCM_ROOT_LOADER:-}
if [ -z "$mode" ]; then
    mode=system
    [ "$system" -ge "$needed" ] || mode=own
fi
if [ "$mode" = own ] && [ "$own" = 0 ]; then
    echo "$0: this takes glibc 2.$needed or later; the system has 2.$system" >&2
    exit 126
fi

# True if the system has all libraries of a folder.
system_has() {
    for library in "$1"/*.so.? "$1"/*.so.??; do
        [ -e "$library" ] || continue
        case $known in
            *" ${library##*/} "*) ;;
            *) return 1 ;;
        esac
    done
}

# Libraries that systems often have: with the system's glibc, and a system that is no older than these, those that it
# lacks; otherwise all.
path=$root/lib
[ "$mode" = system ] || path=$path:$root/lib64
known=""
if [ "$mode" = system ] && [ "$system" -ge "$own" ]; then
    known=" $(PATH="$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null | awk '/x86-64/ { print $1 }' | tr '\n' ' ')"
fi
for folder in "$root"/more/*; do
    [ ! -d "$folder" ] || { [ -n "$known" ] && system_has "$folder"; } || path=$path:$folder
done

interpreter=$root/lib64/ld-linux-x86-64.so.2
case ${1:-} in
    --link)
        options=-Wl,--disable-new-dtags,-rpath,$path
        [ "$mode" = system ] || options=$options,--dynamic-linker=$interpreter
        echo "$options"
        exit
        ;;
    --list)
        for library in "$root"/lib/*.so.?; do
            if [ "$mode" = own ]; then
                "$interpreter" --library-path "$path" --list "$library"
            else
                LD_LIBRARY_PATH=$path ldd "$library"
            fi
        done | sed 's/ (0x[0-9a-f]*)$//' | sort -u
        exit
        ;;
    -h | --help)
        usage
        exit
        ;;
    "" | -*)
        usage >&2
        exit 2
        ;;
esac

program=$(PATH="$root/bin:$PATH" command -v -- "$1") || {
    echo "$0: no such program: $1" >&2
    exit 127
}
shift
export DIPTYCH_HIP_LIBRARY="${DIPTYCH_HIP_LIBRARY:-$root/hip}" ROCM_ROOT_RUN="$root/run"
path=$path${folders:+:$folders}
preload=${VIRTUAL_KFD_LIBRARY:-}
case ":$before:" in
    *":$preload:"*) preload="" ;;
esac
[ -z "$before" ] || export LD_PRELOAD="$before"
if [ "$mode" = own ] && ! head -c 4096 "$program" | LC_ALL=C grep -aqF "$interpreter"; then
    exec "$interpreter" --library-path "$path" ${preload:+--preload "$preload"} --argv0 "$program" "$program" "$@"
fi
[ -z "$preload" ] || export LD_PRELOAD="$preload${before:+:$before}"
if [ "$mode" = system ]; then
    export LD_LIBRARY_PATH="$path"
    # From 2.41 on, glibc loads a library that wants an executable stack, as that of 5.2.3 does, only if it is told so.
    [ "$system" -lt 41 ] || export GLIBC_TUNABLES="${GLIBC_TUNABLES:+$GLIBC_TUNABLES:}glibc.rtld.execstack=2"
elif [ -n "$folders" ]; then
    export LD_LIBRARY_PATH="$folders"
fi
exec "$program" "$@"
