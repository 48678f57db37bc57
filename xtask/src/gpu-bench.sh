#!/bin/sh
# Speed of the 26B-A4B shape with random weights: prefill, decode, batches, depths. Arguments: see the
# example `shape` of lapidary-backend-cuda.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/unpack.sh"
exec "$files/shape" "$files/tree/shapes/gemma4-26b-a4b.json" "${TMPDIR:-/tmp}/lapidary-cubins" "$@"
