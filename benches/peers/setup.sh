#!/bin/sh
# Builds llama.cpp's Python bindings, the peer of compare.py, for this machine's own instructions
# and without a GPU, into the virtual environment that is named:
#
#     benches/peers/setup.sh /tmp/peers
#
# Takes a C++ compiler, and ten to twenty minutes.
set -eu
into=$1
python3 -m venv "$into"
CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-1} \
CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_CUDA=OFF -DLLAVA_BUILD=OFF" \
    nice -n 19 "$into/bin/pip" install --no-binary llama-cpp-python llama-cpp-python numpy
echo "done: $into/bin/python benches/peers/compare.py --help"
