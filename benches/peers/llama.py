"""llama.cpp, timed from one long-living process: reads one request per line, answers with seconds.

Started by compare.py with a model and a setting. A request is a JSON list, `["prefill", n]`,
`["decode", n, depth]` or `["batched", n, sequences]`; the answer is the seconds it took. Nothing but
the named tokens is timed: what lies before them is read once and put back from a copy.
"""

import argparse
import ctypes
import json
import sys
import time

import llama_cpp as api


def tokens_of(vocab, count, first=0):
    """Tokens of no meaning, seldom the same one twice."""
    return [((i * 2_654_435_761 & 0xFFFFFFFF) >> 8) % vocab for i in range(first, first + count)]


class Peer:
    def __init__(self, options):
        quiet = api.llama_log_callback(lambda *_: None)
        api.llama_log_set(quiet, ctypes.c_void_p(0))
        self.quiet = quiet  # Kept, or it would be freed.
        api.llama_backend_init()
        model = api.llama_model_default_params()
        model.n_gpu_layers = 0
        model.use_mmap = options.mmap == "on"
        self.model = api.llama_model_load_from_file(options.model.encode(), model)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {options.model}")
        self.options = options
        vocab = api.llama_model_get_vocab(self.model)
        self.vocab = api.llama_vocab_n_tokens(vocab)
        self.context, self.shape, self.saved = None, None, None

    def open(self, cells, sequences):
        """A context of `cells` per sequence; kept while it serves."""
        if self.shape == (cells, sequences):
            return
        if self.context:
            api.llama_free(self.context)
        params = api.llama_context_default_params()
        params.n_ctx = cells * sequences
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = self.options.threads
        params.flash_attn_type = 1 if self.options.flash == "on" else 0
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp cannot make a context")
        self.batch = api.llama_batch_init(512, 0, 1)
        self.shape, self.saved = (cells, sequences), None

    def step(self, rows):
        """Runs `(token, position, sequence, wants logits)`s and waits for them."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if api.llama_decode(self.context, batch) != 0:
            sys.exit("llama.cpp failed to decode")
        api.llama_synchronize(self.context)

    def clear(self):
        api.llama_memory_clear(api.llama_get_memory(self.context), True)

    def read(self, count):
        tokens = tokens_of(self.vocab, count)
        for first in range(0, count, 512):
            part = tokens[first : first + 512]
            self.step([(t, first + i, 0, first + i == count - 1) for i, t in enumerate(part)])

    def prefill(self, count):
        self.open(count, 1)
        self.clear()
        began = time.perf_counter()
        self.read(count)
        return time.perf_counter() - began

    def decode(self, count, depth):
        self.open(depth + count, 1)
        self.clear()
        if depth and not self.saved:
            self.read(depth)
            size = api.llama_state_seq_get_size(self.context, 0)
            self.saved = (ctypes.c_uint8 * size)()
            api.llama_state_seq_get_data(self.context, self.saved, size, 0)
        elif depth:
            api.llama_state_seq_set_data(self.context, self.saved, len(self.saved), 0)
        tokens = tokens_of(self.vocab, count, depth)
        began = time.perf_counter()
        for i, token in enumerate(tokens):
            self.step([(token, depth + i, 0, True)])
        return time.perf_counter() - began

    def batched(self, count, sequences):
        self.open(count, sequences)
        self.clear()
        began = time.perf_counter()
        for i in range(count):
            tokens = [tokens_of(self.vocab, 1, i + 31 * s)[0] for s in range(sequences)]
            self.step([(token, i, s, True) for s, token in enumerate(tokens)])
        return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--flash", choices=["on", "off"], required=True)
    parser.add_argument("--mmap", choices=["on", "off"], required=True)
    peer = Peer(parser.parse_args())
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        test, *numbers = json.loads(line)
        print(json.dumps(getattr(peer, test)(*numbers)), flush=True)


if __name__ == "__main__":
    main()
