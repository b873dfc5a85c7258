#!/usr/bin/env python3
"""How fast every pair of dtypes is cast: weightlift's kernels, memcpy, the half crate, NumPy with ml_dtypes, PyTorch.

usage: VENV/bin/python benches/compare/casts.py [--only REGEX] [--json FILE] [--markdown FILE]

One pair after the other, the contestants in turns, so that what slows the machine down meets all alike. Sources are
bell-shaped like weights. Everybody writes into memory that is there already. A time is that of a piece: 2^15 elements
again and again (cache), or 2^18 elements of a walk through 2^24 (memory); the quickest quarter of many pieces decides,
because other programs only ever slow a piece down. Takes about a second a pair.
"""
import argparse
import json
import os
import re
import subprocess
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
CACHE, MEMORY, PIECE = 1 << 15, 1 << 24, 1 << 18
FLOATS = "f64 f32 f16 bf16 f8e4m3fn f8e5m2 f8e4m3fnuz f8e5m2fnuz f8e4m3b11fnuz f8e8m0fnu f6e2m3 f6e3m2 f4e2m1".split()
WHOLE = "i64 i32 i16 i8 u64 u32 u16 u8 bool".split()
NAMES = {
    "bf16": "bfloat16", "bool": "bool", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e8m0fnu": "float8_e8m0fnu", "f6e2m3": "float6_e2m3fn", "f6e3m2": "float6_e3m2fn", "f4e2m1": "float4_e2m1fn",
}


def name(dtype):
    return NAMES.get(dtype) or {"f": "float", "i": "int", "u": "uint"}[dtype[0]] + dtype[1:]


def width(dtype):
    digits = re.match(r"\D+(\d+)", dtype)
    return 1 if dtype == "bool" else max(1, int(digits[1]) // 8)


def quickest(pieces, work):
    """Nanoseconds of a piece."""
    times, start = [], time.perf_counter()
    while len(times) < 48 or (time.perf_counter() - start < 0.012 and len(times) < 4096):
        for source, target in pieces:
            begin = time.perf_counter_ns()
            work(source, target)
            times.append(time.perf_counter_ns() - begin)
    return sorted(times)[len(times) // 4]


def values(elements, scale):
    rng = np.random.default_rng(1)
    period = (rng.random((4, 1 << 18), dtype=np.float32).sum(0) - 2) * np.float32(scale)
    return np.resize(period, elements)


def numpy_times(source, target, elements, piece):
    dtype = lambda each: np.dtype(getattr(ml_dtypes, name(each), None) or name(each))
    with np.errstate(all="ignore"):
        a = values(elements, 0.1 if source in FLOATS else 60).astype(dtype(source))
        b = np.ones(elements, dtype(target))
        pieces = [(a[at : at + piece], b[at : at + piece]) for at in range(0, elements, piece)]
        return quickest(pieces, lambda a, b: np.copyto(b, a, casting="unsafe")) / piece


def torch_times(source, target, elements, piece, threads):
    torch.set_num_threads(threads)
    a = torch.from_numpy(values(elements, 0.1 if source in FLOATS else 60)).to(getattr(torch, name(source)))
    b = torch.zeros(elements, dtype=torch.uint8 if target == "bool" else torch.float32).to(getattr(torch, name(target)))
    pieces = [(a[at : at + piece], b[at : at + piece]) for at in range(0, elements, piece)]
    return quickest(pieces, lambda a, b: b.copy_(a)) / piece


def rivals(source, target, threads):
    found = {}
    for place, elements, piece in (("cache", CACHE, CACHE), ("memory", MEMORY, PIECE)):
        found.setdefault("numpy", {})[place] = numpy_times(source, target, elements, piece)
        if hasattr(torch, name(source)) and hasattr(torch, name(target)):
            try:
                found.setdefault("torch", {})[place] = torch_times(source, target, elements, piece, 1)
            except (RuntimeError, NotImplementedError):
                pass  # it has the dtype, but not this cast
    if "torch" in found:
        found["torch"]["all"] = torch_times(source, target, MEMORY, PIECE, threads)
    return found


def pairs():
    for source in FLOATS + WHOLE:
        for target in FLOATS + WHOLE:
            if source != target:
                yield source, target


def rate(nanoseconds, source, target):
    """GB read and written a second."""
    return (width(source) + width(target)) / nanoseconds


def times(ours, theirs):
    return f"{theirs / ours:.2f}" if theirs else ""


def markdown(results, machine):
    yield "# Rates of casts"
    yield ""
    yield machine
    yield ""
    yield "GB/s count bytes read and written by one thread; `memcpy` moves as many. The other columns say how many times as"
    yield "fast weightlift is as each (below 1: the other is faster), one thread against one; \"all threads\": all against all."
    yield ""
    lost = []
    yield "| from | to | cache GB/s | memcpy | half | NumPy | PyTorch | memory GB/s | memcpy | half | NumPy | PyTorch | all threads PyTorch |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in results:
        source, target, ours, found = row["from"], row["to"], row["ours"], row["rivals"]
        cells = [source, target]
        for place in ("cache", "memory"):
            best = min(value for key, value in ours[place].items() if key in ("scalar", "portable", "avx2"))
            others = {
                "half": ours[place].get("half"),
                "NumPy": found["numpy"].get(place),
                "PyTorch": found.get("torch", {}).get(place),
            }
            lost += [(source, target, place, who, value / best) for who, value in others.items() if value and value < best]
            cells += [f"{rate(best, source, target):.1f}", times(best, ours[place]["memcpy"])]
            cells += [times(best, value) for value in others.values()]
        cells.append(times(ours["all"], found.get("torch", {}).get("all")))
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "## Where another is faster"
    yield ""
    if not lost:
        yield "Nowhere in this run."
    for source, target, place, who, ratio in sorted(lost, key=lambda each: each[-1]):
        yield f"- {source} to {target}, {place}: {who}; weightlift reaches {ratio:.2f} of it"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    given = parser.parse_args()
    manifest = ROOT / "benches/kernels/Cargo.toml"
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target/kernels")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(folder)}
    build = ["cargo", "build", "--release", "--quiet", "--manifest-path", manifest]
    subprocess.run(build, check=True, env=environment)
    server = subprocess.Popen(
        [folder / "release/weightlift-benches"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    threads = len(os.sched_getaffinity(0))
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    machine = (
        f"{model[1] if model else 'unknown processor'}, {threads} threads; NumPy {np.__version__}, ml_dtypes "
        f"{ml_dtypes.__version__}, PyTorch {torch.__version__.split('+')[0]}; load before "
        f"{os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d')}. `{Path(__file__).relative_to(ROOT)}`"
    )
    results = []
    for source, target in pairs():
        if given.only and not re.search(given.only, f"{source} {target}"):
            continue
        server.stdin.write(f"{source} {target}\n")
        server.stdin.flush()
        ours = json.loads(server.stdout.readline())
        results.append({"from": source, "to": target, "ours": ours, "rivals": rivals(source, target, threads)})
    text = "\n".join(markdown(results, machine)) + "\n"
    print(text)
    if given.markdown:
        Path(given.markdown).write_text(text)
    if given.json:
        Path(given.json).write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
