#!/usr/bin/env bash
# Runs the fuzz targets of the parsers one after another: fuzz/run.sh [SECONDS] [TARGET…]. Default: 300 s each, all of them.
#
# Stable Rust and a C++ compiler are enough: LLVM's coverage pass is in the stable compiler, libFuzzer comes as source. New
# inputs are kept in fuzz/corpus (not in the repository); what is found is in fuzz/findings and ends the run with 1. An
# input worth keeping goes into fuzz/seeds, which `cargo test` replays (tests/fuzz_seeds.rs).
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-300}; shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(headers bodies config tokens scrape ext_proc_json ext_proc_grpc usage wishes proxy objectives)
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
# With a target given, build scripts and macros are built without the flags.
cargo build --release --target "$host"
failed=0
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" "findings/$target" "seeds/$target"
  echo "== $target, $seconds s"
  if WEIR_FUZZ=$target nice "target/$host/release/weir-fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
      -max_len=16384 -print_final_stats=1 -artifact_prefix="findings/$target/" "corpus/$target" "seeds/$target" \
      > "findings/$target.log" 2>&1; then
    grep -E 'stat::(number_of_executed_units|peak_rss_mb)|DONE' "findings/$target.log" | tail -3
  else
    failed=1
    echo "a finding in $target:"
    tail -30 "findings/$target.log"
  fi
done
exit $failed
