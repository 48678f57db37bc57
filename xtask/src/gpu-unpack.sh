# Sets `files` to the folder of what the part at `here` has packed, unpacked there or, where that cannot
# be written, among temporary files. The built-in model may be left out of a part that runs in the
# repository.
files="$here/files"
mkdir -p "$files" 2>/dev/null && [ -w "$files" ] || files="${TMPDIR:-/tmp}/lapidary-gpu-$(basename "$here")"
if [ ! -e "$files/root" ]; then
    mkdir -p "$files" && xz -dc "$here/files.tar.xz" | tar xf - -C "$files" || exit 1
    model=$here/pebble-Q8_0.gguf
    [ -e "$model" ] || model=models/pebble/pebble-Q8_0.gguf
    for place in tree/models/pebble shared/pebble/gguf; do
        mkdir -p "$files/$place" && cp "$model" "$files/$place/pebble-Q8_0.gguf" || exit 1
    done
fi
