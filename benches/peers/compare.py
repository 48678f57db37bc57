"""Ours and llama.cpp on the same file with the same threads, in turns, as ratios.

    benches/peers/setup.sh /tmp/peers
    cargo build --release
    /tmp/peers/bin/python benches/peers/compare.py --lapidary target/release/lapidary \\
        --model models/pebble/pebble-Q8_0.gguf --model models/fetched/gemma-3-270m-q4_k_m.gguf \\
        --shape shapes/moe-mini.json --json peers.jsonl > peers.md

Every round runs each test once with us and once with each of llama.cpp's settings, so that a machine
whose speed drifts drifts for all. llama.cpp's figure is that of the setting with the best median. One
JSON line per test goes to --json, and a Markdown table to standard output. Run it on a quiet machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Flash attention and mapped files, each on or off.
SETTINGS = [("on", "on"), ("off", "on"), ("on", "off")]


class Llama:
    """llama.cpp with one setting, waiting for requests."""

    def __init__(self, model, threads, flash, mmap):
        self.name = f"flash attention {flash}, mmap {mmap}"
        command = [sys.executable, str(HERE / "llama.py"), str(model)]
        command += ["--threads", str(threads), "--flash", flash, "--mmap", mmap]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"llama.cpp ({self.name}) has ended")
        return json.loads(line)

    def seconds(self, test):
        self.process.stdin.write(json.dumps(test) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def tokens(test):
    """How many tokens a test is about."""
    kind, n, *rest = test
    return n * rest[0] if kind == "batched" else n


def describe(test):
    kind, n, *rest = test
    return {
        "prefill": lambda: f"prefill {n:,}",
        "decode": lambda: f"decode {n}, depth {rest[0]:,}",
        "batched": lambda: f"decode {n}, {rest[0]} sequences",
    }[kind]()


def ours(options, model, test):
    """Tokens per second of one run after a warm-up, in a process of its own."""
    kind, n, *rest = test
    prefill, decode, depth, batch = {
        "prefill": lambda: (n, 0, 0, 1),
        "decode": lambda: (0, n, rest[0], 1),
        "batched": lambda: (0, n, 0, rest[0]),
    }[kind]()
    command = [options.lapidary, "bench", "-m", str(model), "--device", "cpu", "--json"]
    numbers = {"prefill": prefill, "decode": decode, "depth": depth, "batch": batch}
    numbers |= {"threads": options.threads, "repeats": 1}
    for name, number in numbers.items():
        command += [f"--{name}", str(number)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    return report["results"][0]["tok_s"], report["machine"]


def compare(options, model, tests):
    """One record per test."""
    peers = [Llama(model, options.threads, *setting) for setting in SETTINGS]
    for test in tests:
        mine, theirs, machine = [], {peer.name: [] for peer in peers}, None
        for peer in peers:
            peer.seconds(test)
        for _ in range(options.rounds):
            rate, machine = ours(options, model, test)
            mine.append(rate)
            for peer in peers:
                theirs[peer.name].append(tokens(test) / peer.seconds(test))
        best = max(theirs, key=lambda name: statistics.median(theirs[name]))
        # Both sides of a pair were measured within one round.
        pairs = sorted(a / b for a, b in zip(mine, theirs[best]))
        yield {
            "model": model.name,
            "test": describe(test),
            "threads": options.threads,
            "ours": mine,
            "llama": theirs,
            "llama_best": best,
            "ours_tok_s": statistics.median(mine),
            "llama_tok_s": statistics.median(theirs[best]),
            "ratio": statistics.median(pairs),
            "ratio_low": pairs[0],
            "ratio_high": pairs[-1],
            "machine": machine,
        }
    for peer in peers:
        peer.close()


def subjects(options, scratch):
    """`(file, tests)`s."""
    deep = ["decode", 64, 4096]
    usual = [["prefill", 512], ["decode", 64, 0], deep, ["batched", 64, 8]]
    for model in options.model:
        yield model, [t for t in usual if t is not deep or options.deep]
    for shape in options.shape:
        file = scratch / f"{shape.stem}.gguf"
        subprocess.run([sys.executable, str(HERE / "shape_gguf.py"), str(shape), str(file)], check=True)
        yield file, [["prefill", 256], ["decode", 64, 0]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    path = pathlib.Path
    parser.add_argument("--lapidary", default="target/release/lapidary")
    parser.add_argument("--model", type=path, action="append", default=[])
    parser.add_argument("--shape", type=path, action="append", default=[])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-deep", dest="deep", action="store_false", help="leave depth 4,096 out")
    parser.add_argument("--json", type=path)
    options = parser.parse_args()
    records = []
    print("| model | test | ours | llama.cpp | ratio | least and most | its setting |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for model, tests in subjects(options, path(scratch)):
            for r in compare(options, model, tests):
                records.append(r)
                figures = f"{r['ours_tok_s']:,.0f} | {r['llama_tok_s']:,.0f} | {r['ratio']:.2f}"
                spread = f"{r['ratio_low']:.2f} – {r['ratio_high']:.2f}"
                row = [r["model"], r["test"], figures, spread, r["llama_best"]]
                print("| " + " | ".join(row) + " |", flush=True)
    if options.json:
        options.json.write_text("".join(json.dumps(r) + "\n" for r in records))


if __name__ == "__main__":
    main()
