#!/bin/sh
# Every test of the CUDA device that this part of a pack has the files for, on a machine that needs
# neither Rust nor the repository: arguments are passed to the tests. Fails if one fails or is skipped.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/unpack.sh"
root=$(cat "$files/root")
# The tests look for their files where they were built, and for fixtures beside that. What another part
# has put there makes way.
if [ -L "$root" ] || [ ! -e "$root" ]; then
    mkdir -p "$(dirname "$root")"
    ln -sfn "$files/tree" "$root" && ln -sfn "$files/shared" "$(dirname "$root")/shared" || exit 1
fi
mkdir -p "$root/target/tmp"
log=$(mktemp)
# shellcheck disable=SC2046 # names of tests have no blanks
"$files/it" --show-output --exact $(cat "$files/tests") "$@" >"$log" 2>&1
status=$?
cat "$log"
if grep -q '^skipped' "$log"; then
    echo "error: some tests were skipped"
    status=1
fi
rm -f "$log"
exit $status
