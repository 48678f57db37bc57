#!/bin/sh
# How fast a model decodes at depth 0, 1k, 4k and 8k with each cache regime, as a Markdown table.
# Run it on a quiet machine:
#
#     benches/kv-depth.sh target/release/lapidary models/fetched/gemma-3-270m-q4_k_m.gguf
#
# Each figure is the median of five runs of 32 tokens; the spread is that of the widest cell.
set -eu
lapidary=$1
model=$2
depths=0,1024,4096,8192

echo "| \`--kv\` | 0 | 1,024 | 4,096 | 8,192 | spread |"
echo "|---|---|---|---|---|---|"
for kv in f32 f16 hybrid:8 hybrid:4 tq8 tq6 tq5 tq4 tq:k6:v5; do
    "$lapidary" bench -m "$model" --kv "$kv" --prefill 1 --decode 32 --depth $depths --json |
        python3 -c '
import json, sys
results = json.load(sys.stdin)["results"]
decode = [r for r in results if r["test"] == "decode"]
cells = " | ".join("%.1f" % r["tok_s"] for r in decode)
spread = 100 * max(r["spread"] for r in decode)
print("| `%s` | %s | %.0f %% |" % (sys.argv[1], cells, spread))' "$kv"
done
