"""Compiles every kernel for every architecture that is supported, without a GPU.

Run with a Python that has the package `nvidia-cuda-nvrtc`, or with NVRTC on the library path:
    python3 check.py [--verbose] [FILE ...]
Exit status 1 if anything fails to compile. With --verbose, registers and spills are listed.
"""

import ctypes
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHITECTURES = ["sm_80", "sm_89", "sm_90a", "sm_100"]
# Pairs of codes, keys times six and values: see view.cuh.
ROTATED = [6 * k + v for k in range(1, 6) for v in range(1, 6)]
FORMATS = {"quantised": [*range(8), 11, 12], "packed": [*range(8), *range(12, 17)],
           "floats": range(8, 11), "stored": [0, *ROTATED], "wide": [0, 7], "f32": [0],
           "tensor": [pair for pair in ROTATED if pair % 6 > 1 or pair == 7], "codes": range(2, 6),
           "": [0]}
FAMILIES = {
    "pack.cu": "packed", "matmul_plain.cu": "quantised", "matmul_rows.cu": "quantised",
    "matmul_few.cu": "quantised", "matmul_many.cu": "quantised", "matmul_tiles.cu": "quantised",
    "embed.cu": "quantised", "pack_floats.cu": "floats", "matmul_floats.cu": "floats",
    "embed_floats.cu": "floats", "attend.cu": "f32", "attend_plain.cu": "stored",
    "kv_write.cu": "wide", "kv_code.cu": "codes", "attend_tensor.cu": "tensor",
}


def library():
    candidates = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]
    for folder in sys.path:
        lib = os.path.join(folder, "nvidia", "*", "lib")
        candidates += glob.glob(os.path.join(lib, "libnvrtc.so.*"))
        # The library looks its builtins up by name: loading them first makes them found.
        for builtins in glob.glob(os.path.join(lib, "libnvrtc-builtins.so.*")):
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    for name in candidates:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("NVRTC was not found: pip install nvidia-cuda-nvrtc")


def compile_one(nvrtc, source, name, headers, options):
    program = ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(headers))(*[text for _, text in headers])
    names = (ctypes.c_char_p * len(headers))(*[name.encode() for name, _ in headers])
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), len(headers), texts, names)
    flags = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    status = nvrtc.nvrtcCompileProgram(program, len(options), flags)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status, log.value.decode()


def main():
    verbose = "--verbose" in sys.argv
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    nvrtc = library()
    read = lambda path: open(path, "rb").read()
    headers = [(os.path.basename(p), read(p)) for p in sorted(glob.glob(HERE + "/*.cuh"))]
    failed = done = 0
    for path in sorted(glob.glob(HERE + "/*.cu")):
        name = os.path.basename(path)
        if wanted and name not in wanted:
            continue
        for architecture in ARCHITECTURES if not verbose else ["sm_90a"]:
            for form in FORMATS[FAMILIES.get(name, "")]:
                options = [f"--gpu-architecture={architecture}", "--fmad=false", "--std=c++17",
                           f"-DFORMAT={form}"]
                if verbose:
                    options.append("--ptxas-options=-v")
                status, log = compile_one(nvrtc, read(path), name, headers, options)
                done += 1
                if status != 0 or verbose:
                    print(f"{name} FORMAT={form} {architecture}: status {status}\n{log}")
                failed += status != 0
    print(f"{done} compilations, {failed} failed")
    sys.exit(1 if failed else 0)


main()
