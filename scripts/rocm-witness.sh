#!/usr/bin/env bash
# Runs other people's HIP programs on the virtual card: Debian's llama.cpp with its ROCm backend, hipBLAS, rocBLAS.
#
#   scripts/rocm-witness.sh [OPTION...] fetch | ops [OP...] | bench | tokens [TYPE...] | programs | run PROGRAM [ARGUMENT...]
#
# Nothing is installed. scripts/rocm-roots.sh unpacks the packages of scripts/rocm-witness.txt, and those of its root
# 6.4.3, into target/witness. See docs/witness.md. Exit status: 0 all is well, 1 something is not, 2 wrong use.
set -euo pipefail

# Operations of test-backend-ops that are tested if none is named.
readonly OPS=(RMS_NORM MUL_MAT MUL_MAT_ID ROPE SOFT_MAX FLASH_ATTN_EXT GET_ROWS SET_ROWS CPY ADD SWIGLU SSM_SCAN)

here=$(cd "$(dirname "$0")" && pwd)
work=$here/../target/witness
examples=$here/../target/release/examples
library=$here/../target/release/libvirtual_kfd_preload.so
card=mi50
limit=120
shape=qwen2.5-0.5b
list=5
prompt=16

main() {
    local command
    while [ $# -gt 0 ]; do
        case $1 in
            --to) work=$2 ;;
            --examples) examples=$2 ;;
            --library) library=$2 ;;
            --card) card=$2 ;;
            --limit) limit=$2 ;;
            --shape) shape=$2 ;;
            --list) list=$2 ;;
            --prompt) prompt=$2 ;;
            -h | --help) usage && exit ;;
            -*) wrong_use "unknown option: $1" ;;
            *) break ;;
        esac
        shift 2 || wrong_use "an option takes a value"
    done
    command=${1:-}
    [ $# = 0 ] || shift
    case $command in
        fetch) fetch ;;
        ops | bench | tokens | programs) prepare && "$command" "$@" ;;
        run) prepare && witness "$@" ;;
        *) wrong_use "a command is missing" ;;
    esac
}

usage() {
    cat <<END
usage: scripts/rocm-witness.sh [OPTION...] COMMAND

  fetch          unpack the programs and what they need: 0.5 GB of packages, 2.8 GB unpacked
  ops [OP...]    llama.cpp's test-backend-ops; default: ${OPS[*]}
  bench          llama-bench with a small model
  tokens [TYPE...]  instructions, dispatches and bytes of a token, llama.cpp's and ours; default: Q4_0 Q8_0
  programs       rocminfo, hipBLAS, rocBLAS's bench
  run PROGRAM [ARGUMENT...]  any program with these libraries

  --card CARD      a card of virtual-kfd (default: mi50; vega56 is a gfx900)
  --limit S        seconds for each operation and program (default: 120)
  --shape NAME     shape of the model of 'tokens' (default: qwen2.5-0.5b)
  --prompt N       tokens of the prompt of 'tokens' (default: 16)
  --list N         kernels that 'tokens' lists (default: 5)
  --to DIR         folder of packages and results (default: target/witness)
  --examples DIR   this project's programs synthesize and bench (default: target/release/examples)
  --library FILE   the library of virtual-kfd (default: target/release/libvirtual_kfd_preload.so)

VIRTUAL_KFD_CHECKS=none is faster (bench and tokens set it unless it is set).
END
}

say() { printf 'rocm-witness: %s\n' "$*"; }

die() {
    printf 'rocm-witness: %s\n' "$*" >&2
    exit 1
}

wrong_use() {
    printf 'rocm-witness: %s\n' "$*" >&2
    usage >&2
    exit 2
}

# ---------------------------------------------------------------------------------------------------------------------
# Packages and programs.

fetch() {
    mkdir -p "$work"
    {
        awk '$1 == "6.4.3" { $1 = "witness"; print }' "$here/rocm-roots.txt"
        cat "$here/rocm-witness.txt"
    } >"$work/table"
    bash "$here/rocm-roots.sh" --to "$work" --table "$work/table" witness
}

prepare() {
    [ -x "$work/witness/run" ] || die "no programs in $work: scripts/rocm-witness.sh fetch"
    [ -f "$library" ] || die "no $library: cargo build --release -p virtual-kfd-preload"
    work=$(cd "$work" && pwd)
    library=$(readlink -f "$library")
    libraries=$work/witness/tree/usr/lib/x86_64-linux-gnu
    mkdir -p "$work/results"
}

# witness PROGRAM [ARGUMENT...]: runs a program of the packages, or another, on the card.
witness() {
    local program=$1 found
    shift
    found=$(find "$work/witness/tree/usr/bin" "$work/witness/tree/usr/libexec" -type f -name "$program" | head -n 1)
    # ggml looks for its backends in the working directory.
    cd "$libraries/ggml/backends0"
    LD_LIBRARY_PATH=$libraries:$libraries/llama:$libraries/ggml/backends0:$libraries/blas \
        VIRTUAL_KFD_LIBRARY=$library VIRTUAL_KFD_CARDS=$card "$work/witness/run" "${found:-$program}" "$@"
}

# limited PROGRAM [ARGUMENT...]: the same with the time limit.
limited() {
    local status=0
    (export -f witness && export work libraries library card &&
        exec timeout "$limit" bash -c 'witness "$@"' bash "$@") || status=$?
    return $status
}

example() {
    [ -x "$examples/$1" ] || die "no $examples/$1: cargo build --release --example $1"
    "$examples/$@"
}

# model SHAPE TYPE: prints the path of a model, which is written if it is not there.
model() {
    local file=$work/$1-$2.gguf
    [ -f "$file" ] || example synthesize --shape "$1" --type "$2" "$file" >&2
    echo "$file"
}

# ---------------------------------------------------------------------------------------------------------------------
# llama.cpp's own tests of operations.

ops() {
    local op status log failed=0
    [ $# -gt 0 ] || set -- "${OPS[@]}"
    echo "operation passed failed unsupported end"
    for op in "$@"; do
        log=$work/results/ops-$card-$op.log
        status=0
        limited test-backend-ops test -b ROCm0 -o "$op" >"$log" 2>&1 || status=$?
        sed -i 's/\x1b\[[0-9;]*m//g' "$log"
        summary "$op" "$status" "$log" || failed=1
    done
    return $failed
}

# summary OPERATION STATUS LOG: prints how many cases passed; fails if one failed or the program did not end well.
summary() {
    local passed failed unsupported end=complete
    passed=$(grep -cE '^ *[A-Z_0-9]+\(.*: *OK' "$3") || true
    failed=$(grep -cE '^ *[A-Z_0-9]+\(.*: *FAIL|: FAIL$|> .* FAIL' "$3") || true
    unsupported=$(grep -c 'not supported' "$3") || true
    case $2 in
        0) ;;
        124) end="after $limit s" ;;
        *) end="status $2" ;;
    esac
    echo "$1 $passed $failed $unsupported $end"
    grep -h '^virtual-kfd' "$3" | sort | uniq -c | sort -rn | head -n 5 || true
    [ "$failed" = 0 ] && { [ "$2" = 0 ] || [ "$2" = 124 ]; } && [ "$passed" -gt 0 ]
}

bench() {
    export VIRTUAL_KFD_CHECKS=${VIRTUAL_KFD_CHECKS:-none}
    limited llama-bench -m "$(model small-llama Q8_0)" -p 16 -n 8 -r 1 -ngl 99 2>&1 | grep -v 'failed to enumerate'
}

# ---------------------------------------------------------------------------------------------------------------------
# Counts of a token.

# Each figure is a run without another that does a little less: one prompt, or one token behind 16 others.
tokens() {
    local type n peer own
    export VIRTUAL_KFD_CHECKS=${VIRTUAL_KFD_CHECKS:-none}
    [ $# -gt 0 ] || set -- Q4_0 Q8_0
    # The programs run in another folder.
    examples=$(readlink -f "$examples")
    for type in "$@"; do
        peer=(limited llama-bench -m "$(model "$shape" "$type")" -ngl 99 --no-warmup)
        own=(limited "$examples/bench" --backend hip --model "$(model "$shape" "$type")" --warm-up 0)
        for n in 1 2; do
            counted "$type-peer-d$n" "${peer[@]}" -p 0 -n $n -d 16 -r 1
        done
        report "$shape $type, decode, llama.cpp" 1 "$type-peer-d1" "$type-peer-d2"
        for n in 1 2; do
            counted "$type-own-d$n" "${own[@]}" --prompt-tokens 0 --depth 16 --predict $n --repeat 1
        done
        # The uncounted run before the measured one also has one token more.
        report "$shape $type, decode, ours" 2 "$type-own-d1" "$type-own-d2"
        for n in 1 2; do
            counted "$type-peer-p$n" "${peer[@]}" -p "$prompt" -n 0 -r $n
            counted "$type-own-p$n" "${own[@]}" --prompt-tokens "$prompt" --predict 0 --repeat $n
        done
        report "$shape $type, prompt of $prompt, llama.cpp" 1 "$type-peer-p1" "$type-peer-p2"
        report "$shape $type, prompt of $prompt, ours" 1 "$type-own-p1" "$type-own-p2"
    done
}

# counted NAME COMMAND...: runs a command with counts in a file of this name.
counted() {
    local file=$work/results/$card-$1 try
    shift
    for try in 1 2 3; do
        rm -f "$file"
        VIRTUAL_KFD_COUNTS=$file "$@" >"$file.log" 2>&1 || die "failed, see $file.log: $*"
        ! is_cut "$file" || continue
        return 0
    done
    die "the last token was cut off $try times, see $file: $*"
}

# True if our program ended while it computed a token ahead, so that only a part of it was counted.
is_cut() {
    awk -F '\t' '$1 == "kernel" && $2 == "best" { best = $3 }
        $1 == "kernel" && $2 ~ /^get_rows_[qm]/ { rows += $3 }
        END { exit !(best && best != rows) }' "$1"
}

# report TITLE RUNS MINUS PLUS
report() {
    echo "$1"
    awk -f "$here/witness/counts.awk" -v runs="$2" -v list="$list" "$work/results/$card-$3" "$work/results/$card-$4"
}

# ---------------------------------------------------------------------------------------------------------------------
# Other programs.

programs() {
    local failed=0
    program rocminfo limited rocminfo || failed=1
    if command -v cc >/dev/null; then
        cc -O2 -o "$work/blas" "$here/witness/blas.c" -ldl -lm
        program hipBLAS limited "$work/blas" || failed=1
    else
        say "hipBLAS skipped: no C compiler"
    fi
    program "rocBLAS gemm" limited rocblas-bench -f gemm -r s -m 64 -n 64 -k 64 -v 1 -i 1 -j 0 || failed=1
    program "rocBLAS axpy" limited rocblas-bench -f axpy -r s -n 1000 -v 1 -i 1 -j 0 || failed=1
    return $failed
}

# program TITLE COMMAND...
program() {
    local title=$1 log=$work/results/$card-${1// /-}.log status=0
    shift
    "$@" >"$log" 2>&1 || status=$?
    echo "$title: $([ $status = 0 ] && echo runs || echo "status $status"), $log"
    tail -n 5 "$log" | sed 's/^/    /'
    return $status
}

main "$@"
