#!/usr/bin/env bash
# Builds the fuzz targets with the stable toolchain and runs each for a few seconds from seeds made of the fixtures.
#
#   tests/fuzz_smoke.sh [SECONDS] [TARGET]...
#
# A line for each target: what it ran and how many edges its inputs reach, those of the seeds first. Ends with an error
# where a target finds something, and says where the input lies.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:-6}
shift || true
host=$(rustc -vV | sed -n 's/^host: //p')
binaries=$PWD/target/$host/release
logs=$PWD/target/smoke
mkdir -p "$logs" artifacts

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(cd fuzz_targets && ls -- *.rs | sed 's/\.rs$//')
fi

# What cargo-fuzz passes, without the sanitizer, which needs a nightly compiler. The target is named so that build
# scripts are left alone.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-pc-table"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$coverage --cfg fuzzing" CARGO_TARGET_DIR=target \
    cargo build --quiet --release --locked --target "$host" "${targets[@]/#/--bin=}"

# Runs a target over its seeds; what it finds that is new is thrown away.
smoke() {
    local target=$1 log=$logs/$1.log corpus=$logs/$1.corpus
    rm -rf "$corpus"
    WEIGHTLIFT_FUZZ_SEEDS=$corpus "$binaries/$target" > "$log" 2>&1
    RUST_BACKTRACE=1 "$binaries/$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=1024 -max_len=32768 \
        -print_final_stats=1 -artifact_prefix="artifacts/$target-" "$corpus" > "$log" 2>&1
}

# A target whose coverage does not show is not instrumented: its run would say nothing.
report() {
    local target=$1 log=$logs/$1.log
    if grep -q '^SUMMARY: libFuzzer' "$log" || ! grep -q 'DONE  *cov: ' "$log"; then
        echo "$target: FOUND SOMETHING" >&2
        sed -n '/panicked at\|an allocation of\|ERROR: libFuzzer/,/NOTE: libFuzzer/p' "$log" | head -n 60 >&2
        sed -n 's|.*Test unit written to |the input lies in fuzz/|p' "$log" >&2
        return 1
    fi
    edges() { sed -n "s/.*$1  *cov: \([0-9]*\) .*/\1/p" "$log"; }
    printf '%-18s %9d runs   edges %5d, then %5d\n' "$target" \
        "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(edges INITED)" "$(edges DONE)"
}

failed=0
running=()
for target in "${targets[@]}"; do
    if [ ${#running[@]} -ge "$(nproc)" ]; then
        wait "${running[0]}" || true
        running=("${running[@]:1}")
    fi
    smoke "$target" &
    running+=($!)
done
wait
for target in "${targets[@]}"; do
    report "$target" || failed=1
done
exit "$failed"
