#!/usr/bin/env bash
# Runs all tests of the workspace: builds them, then runs two test programs at a time, each with half of the processors.
#
#   scripts/test.sh
#
# `cargo test` runs the same programs one after the other; most of them end with one long test, for which all other
# processors wait. The output of a program is printed when it has ended. Exit status: 0 if all tests passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# Programs that take longest; they begin first.
readonly FIRST="all backend-hip/all cards ggml-core/all backend-vulkan/all backend-vulkan/tiles checks/all virtual-gpu/all virtual-kfd/preload/all"

# Programs many of whose tests wait for deadlines: they run one test more at a time.
readonly WAITING=" all cards "

# Part of the names of all tests of the documentation, and of no others. They have no program, and `--doc` would build
# everything again, with the features that dependencies of tests do not add.
readonly DOCUMENTATION="(line "

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'trap - TERM; kill 0' INT TERM

# Prints name, folder and executable, with tabs between them, for each test program in the messages of cargo. The name
# is that of the folder and the program: backend-hip/all, or all for the package of the root.
programs() {
    sed -nE '/"profile":\{[^}]*"test":true/ s|.*"manifest_path":"([^"]*)/Cargo.toml".*"name":"([^"]*)","src_path".*"executable":"([^"]*)".*|\1/\2\t\1\t\3|p' "$1" |
        sed "s|^$PWD/||"
}

# run LINE: runs a test program, given as `programs` prints it, in its package's folder, as cargo does, and prints its
# output.
run() {
    local name folder executable status begin=$SECONDS output tests=$threads
    IFS=$'\t' read -r name folder executable <<<"$1"
    output=$work/${name//\//-}.log
    [[ $WAITING != *" $name "* ]] || tests=$((threads + 1))
    if [ "$name" = doc ]; then
        cargo test --workspace --no-fail-fast -- "$DOCUMENTATION" >"$output" 2>&1
    else
        (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$executable" --test-threads="$tests" >"$output" 2>&1)
    fi
    status=$?
    [ "$status" = 0 ] || echo "$name" >>"$work/failed"
    {
        flock 9
        echo "     Running $name ($executable)"
        cat "$output"
        echo "$name: status $status after $((SECONDS - begin)) s"
        echo
    } 9>"$work/lock"
}

# One of AMD's user spaces runs on the emulated card. It is fetched while cargo builds; without it, its tests say that they
# were skipped.
: >"$work/rocm"
[ "$(uname -sm)" != "Linux x86_64" ] || scripts/rocm-roots.sh 5.2.3 >"$work/rocm" 2>&1 &
cargo test --workspace --no-run --message-format=json-render-diagnostics >"$work/messages" || exit 1
wait
cat "$work/rocm"
threads=$((($(getconf _NPROCESSORS_ONLN) + 1) / 2))
programs "$work/messages" >"$work/programs"
[ -s "$work/programs" ] || { echo "error: cargo named no test programs" >&2; exit 1; }
for name in $FIRST; do grep "^$name"$'\t' "$work/programs"; done >"$work/queue"
grep -vxFf "$work/queue" "$work/programs" >>"$work/queue"
printf 'doc\t.\tdocumentation\n' >>"$work/queue"

export -f run
export work threads WAITING DOCUMENTATION
xargs -P 2 -d '\n' -n 1 bash -c 'run "$1"' run <"$work/queue"

if [ -s "$work/failed" ]; then
    echo "failed: $(sort "$work/failed" | paste -sd ' ')"
    exit 1
fi
