#!/bin/sh
# Every test of the CUDA device, on a machine that needs neither Rust nor the repository: arguments are
# passed to the tests. Fails if one fails or is skipped.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cat "$here/root")
# The tests look for their files where they were built.
if [ ! -e "$root" ]; then
    mkdir -p "$(dirname "$root")" && ln -s "$here/tree" "$root" || exit 1
fi
mkdir -p "$root/target/tmp"
log=$(mktemp)
"$here/it" --show-output "$@" >"$log" 2>&1
status=$?
cat "$log"
if grep -q '^skipped' "$log"; then
    echo "error: some tests were skipped"
    status=1
fi
rm -f "$log"
exit $status
