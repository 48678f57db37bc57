"""Load on a running server: many connections, some of which go away in the middle.

    lapidary serve --port 8080 --slots 8 --queue 512 --ctx 512 &
    python3 benches/load.py http://127.0.0.1:8080 --pid $! --markdown docs/load.md

Every request is a stream of a question with a seed. 20 % of the clients leave after a few tokens. All
others must get the text that the same request gets alone, no status may be 5xx, and the server's
memory may not grow. Standard library only.
"""

import argparse
import http.client
import json
import random
import threading
import time
from urllib.parse import urlsplit

WORDS = "Mongolia Peru Japan Chad Fiji Oman Cuba Laos Mali Togo France Spain Kenya Nepal Qatar".split()


def request(i):
    """The i-th request: questions repeat, seeds too, so that alone-texts are few."""
    country = WORDS[i % len(WORDS)]
    return {
        "messages": [{"role": "user", "content": f"What is the capital of {country}?"}],
        "temperature": 1.0,
        "seed": i % 4,
        "max_tokens": 32,
        "stream": True,
    }


def ask(address, body, leave_after=None):
    """Status, text, seconds to the first token, and seconds between tokens."""
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    began = last = time.perf_counter()
    first, gaps, text, pieces = None, [], "", 0
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            response.read()
            return response.status, None, None, []
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                return 500, None, None, []
            piece = chunk["choices"][0]["delta"].get("content") if chunk["choices"] else None
            if not piece:
                continue
            now = time.perf_counter()
            if first is None:
                first = now - began
            else:
                gaps.append(now - last)
            last, text, pieces = now, text + piece, pieces + 1
            if leave_after is not None and pieces >= leave_after:
                return 200, None, first, gaps
        return 200, text, first, gaps
    finally:
        connection.close()


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("server")
    options.add_argument("--connections", type=int, default=200)
    options.add_argument("--requests", type=int, default=2000)
    options.add_argument("--leave", type=float, default=0.2)
    options.add_argument("--pid", type=int)
    options.add_argument("--markdown", help="write the figures into this file")
    options.add_argument("--machine", default="", help="a sentence for that file")
    given = options.parse_args()
    address = urlsplit(given.server)

    period = len(WORDS) * 4
    alone = [ask(address, request(i))[1] for i in range(period)]
    assert all(alone), "every request has an answer alone"

    dice = random.Random(0)
    leaves = [dice.randint(0, 3) if dice.random() < given.leave else None for _ in range(given.requests)]
    todo, lock = iter(range(given.requests)), threading.Lock()
    results = [None] * given.requests
    memory = []

    def work():
        while True:
            with lock:
                i = next(todo, None)
            if i is None:
                return
            try:
                results[i] = ask(address, request(i), leaves[i])
            except OSError as error:
                results[i] = (0, str(error), None, [])

    began = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(given.connections)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if given.pid:
            memory.append(resident(given.pid))
        time.sleep(0.5)
    took = time.perf_counter() - began

    broken = [i for i, r in enumerate(results) if r[0] != 200]
    wrong = [i for i, r in enumerate(results) if r[0] == 200 and leaves[i] is None and r[1] != alone[i % period]]
    firsts = [r[2] for r in results if r[2] is not None]
    gaps = [gap for r in results for gap in r[3]]
    quarter = max(1, len(memory) // 4)
    # The first quarter warms up: every connection has been there once.
    growth = (max(memory[-quarter:]) / max(memory[quarter:2 * quarter]) - 1) * 100 if len(memory) >= 8 else float("nan")
    ms = lambda seconds: f"{seconds * 1e3:.1f}"
    lines = [
        f"| requests | {given.requests} over {given.connections} connections in {took:.1f} s |",
        f"| left in the middle | {sum(leave is not None for leave in leaves)} |",
        f"| not answered with 200 | {len(broken)} |",
        f"| text other than alone | {len(wrong)} |",
        f"| time to first token, ms, p50 / p99 | {ms(quantile(firsts, .5))} / {ms(quantile(firsts, .99))} |",
        f"| between tokens, ms, p50 / p99 | {ms(quantile(gaps, .5))} / {ms(quantile(gaps, .99))} |",
        f"| tokens per second, all together | {(len(gaps) + len(firsts)) / took:.0f} |",
        f"| growth of memory after warming up, % | {growth:.1f} |",
    ]
    print("\n".join(lines))
    if given.markdown:
        with open(given.markdown, "w") as page:
            page.write("# Load\n\nWritten by `benches/load.py`, which says how. " + given.machine)
            page.write("\n\n| what | figure |\n|---|---|\n")
            page.write("\n".join(lines) + "\n")
    assert not broken, f"statuses {sorted({results[i][0] for i in broken})}"
    assert not wrong, f"request {wrong[0]}: {results[wrong[0]][1]!r}, alone {alone[wrong[0] % period]!r}"
    assert not growth > 10, "memory grows"


main()
