#!/usr/bin/env bash
# Fuzzes what reads files, on the stable toolchain, with libFuzzer.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]
#
# Each target runs for so long (60 seconds), with the seeds in fuzz/seeds and what earlier runs found in
# fuzz/corpus. An input that panics, hangs for 20 seconds or takes 2 GiB is kept in fuzz/artifacts and ends the target;
# 'scripts/fuzz.sh 0 TARGET' runs what is kept there again. Exit status: 0 nothing was found, 1 something was.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(gguf graph tokenizer chat code_object imatrix run_folder report)

# What cargo-fuzz passes for its own builds, without a sanitizer, which would take a nightly compiler. The flags stay
# away from build scripts because a target is named.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="${RUSTFLAGS:-} --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
export RUSTFLAGS DIPTYCH_HIP_TARGETS=none
cargo build --release --target "$host" "${targets[@]/#/--bin=}"

found=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    program=target/$host/release/$target
    if [ "$seconds" = 0 ]; then
        for input in "artifacts/$target"/*; do
            [ ! -f "$input" ] || "$program" "$input" || found=1
        done
        continue
    fi
    echo "== $target for $seconds s"
    "$program" "corpus/$target" "seeds/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1 -verbosity=1 -artifact_prefix="artifacts/$target/" \
        2>"artifacts/$target.log" || {
        found=1
        echo "found something; the end of fuzz/artifacts/$target.log:"
        tail -n 30 "artifacts/$target.log"
    }
    grep -E '^stat::(number_of_executed_units|new_units_added)' "artifacts/$target.log" || true
done
exit $found
