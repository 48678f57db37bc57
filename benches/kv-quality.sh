#!/bin/sh
# Divergence of each cache regime from f16 over plain float weights, where only the cache differs, as
# rows of the table in docs/kv-cache.md. Takes an hour on two cores; a busy machine changes no figure.
#
#     benches/kv-quality.sh target/release/lapidary models/fetched/gemma-3-270m-q4_k_m.gguf kld.txt
set -eu
lapidary=$1
model=$2
text=$3

smaller=sliding=tq4,global=tq4,layers:0-12=tq:k5:v4
for kv in f32 tq8 hybrid:4 tq:k6:v5 tq:k6:v4 tq5 $smaller tq4; do
    "$lapidary" eval -m "$model" --weights f32 --kld "$text" --ctx 2048 --windows 4 --kv "$kv" --json |
        python3 -c '
import json, sys
found = json.load(sys.stdin)
same = 100 * found["same_top"]
print("| `%s` | %.6f | %.2f %% |" % (sys.argv[1], found["mean_kld"], same))' "$kv"
done
