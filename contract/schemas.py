"""Every answer to a schema request that ends in `stop` conforms to its schema.

usage: schemas.py http://127.0.0.1:PORT [COUNT]        (needs jsonschema)

Random schemas, a tiny model at temperature 1, and an independent judge. Schemas may be refused, by
name; most must not be.
"""

import concurrent.futures
import json
import random
import sys
import urllib.error
import urllib.request

import jsonschema

SERVER, COUNT = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
WORDS = ["name", "age", "city", "tags", "ok", "größe", "a b", "x-y", "id", "café"]


def schema(dice, depth=0):
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "range"]
    if depth < 3:
        kinds += ["object", "object", "array", "anyOf", "types"]
    kind = dice.choice(kinds)
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "string":
        return {"type": "string", "minLength": dice.randint(0, 3), "maxLength": dice.randint(3, 12)}
    if kind == "integer":
        return {"type": "integer", "minimum": dice.randint(-50, 0), "maximum": dice.randint(0, 500)}
    if kind == "number":
        return {"type": "number", "minimum": -1.5, "maximum": dice.randint(0, 9)}
    if kind == "range":
        return {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": dice.randint(5, 2000)}
    if kind == "enum":
        return {"enum": dice.sample(["a", "b\"c", 1, 2.5, None, True, "é\n"], dice.randint(1, 4))}
    if kind == "const":
        return {"const": dice.choice(["x", 7, None, False, {"k": [1]}])}
    if kind == "pattern":
        return {"type": "string", "pattern": dice.choice(["^[a-f]{2,4}$", "^\\d{4}-\\d{2}$", "^(yes|no)$"])}
    if kind == "array":
        low = dice.randint(0, 2)
        return {"type": "array", "items": schema(dice, depth + 1), "minItems": low, "maxItems": low + 2}
    if kind == "anyOf":
        return {"anyOf": [schema(dice, depth + 1) for _ in range(2)]}
    if kind == "types":
        return {"type": dice.sample(["integer", "boolean", "null"], 2)}
    names = dice.sample(WORDS, dice.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: schema(dice, depth + 1) for name in names},
        "required": dice.sample(names, dice.randint(0, len(names))),
        "additionalProperties": False,
    }


def ask(seed):
    wanted = schema(random.Random(seed))
    body = {
        "messages": [{"role": "user", "content": "What is the capital of Mongolia? Answer in JSON."}],
        "temperature": 1, "seed": seed, "max_tokens": 400,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": wanted}},
    }
    request = urllib.request.Request(f"{SERVER}/v1/chat/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            choice = json.load(answer)["choices"][0]
    except urllib.error.HTTPError as error:
        told = json.load(error)["error"]
        assert error.code == 400 and told["param"].startswith("response_format"), (wanted, told)
        return "refused"
    if choice["finish_reason"] != "stop":
        assert choice["finish_reason"] == "length", choice
        return "length"
    try:
        jsonschema.validate(json.loads(choice["message"]["content"]), wanted)
    except (ValueError, jsonschema.ValidationError) as error:
        raise AssertionError(f"seed {seed}: {choice['message']['content']!r} for {wanted}") from error
    return "valid"


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    outcomes = list(pool.map(ask, range(COUNT)))
counts = {kind: outcomes.count(kind) for kind in ("valid", "length", "refused")}
print(counts)
assert counts["valid"] > COUNT * 0.7, counts
