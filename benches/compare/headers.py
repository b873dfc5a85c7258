#!/usr/bin/env python3
"""Times what costs only the header of a safetensors file: a listing of many tensors, and renames at several sizes.

    benches/compare/headers.py WEIGHTLIFT [SCRATCH] [--sizes 0.1,1,4] [--tensors 100000] [--rounds 5] [--python PATH]

Files are made in SCRATCH (default target/bench) and removed. Renames take the prefix `scope/` off 200 tensors: in place,
and by writing the file anew with every byte. The listing is that of the command, its start included, against `safe_open`
and `keys` in a process that has imported safetensors and opened the file once (without --python: left out).
"""

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path

from index import GIB, run, safetensors

WARM = """
import statistics, sys, time
from safetensors import safe_open
times = []
for _ in range(int(sys.argv[2]) + 1):
    start = time.perf_counter()
    with safe_open(sys.argv[1], framework="np") as opened:
        count = len(opened.keys())
    times.append(time.perf_counter() - start)
print(count, statistics.median(times[1:]))
"""


def renames(weightlift, folder, sizes, rounds):
    print("| rename of 200 tensors | in place | written anew |\n|---|---:|---:|")
    path, copy = folder / "model.safetensors", folder / "copy.safetensors"
    strip = ("--strip-prefix", "scope/")
    for size in sizes:
        safetensors(path, 200, int(size * GIB) // 200 // 4)
        in_place, anew = [], []
        for _ in range(rounds):
            anew.append(run(weightlift, "convert", path, copy, "--force", *strip))
            in_place.append(run(weightlift, "convert", path, path, "--in-place", *strip))
            run(weightlift, "convert", path, path, "--in-place", "--add-prefix", "scope/")
        print(f"| {size:g} GiB | {statistics.median(in_place) * 1e3:.1f} ms | {statistics.median(anew):.2f} s |", flush=True)
        path.unlink()
        copy.unlink()


def listing(weightlift, folder, tensors, rounds, python):
    path = folder / "many.safetensors"
    safetensors(path, tensors, 4)
    seconds = statistics.median(run(weightlift, "ls", path, "--names-only") for _ in range(rounds))
    print(f"\nls of {tensors} tensors ({path.stat().st_size / 1e6:.1f} MB): {seconds:.3f} s, the start of the command included")
    if python:
        warm = subprocess.run([python, "-c", WARM, path, str(rounds)], check=True, capture_output=True, text=True)
        count, seconds = warm.stdout.split()
        print(f"safe_open and keys in a warm process: {float(seconds):.3f} s for {count} names")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weightlift", type=Path)
    parser.add_argument("scratch", nargs="?", type=Path, default=Path("target/bench"))
    parser.add_argument("--sizes", default="0.1,1,4")
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python")
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        renames(arguments.weightlift, Path(folder), [float(size) for size in arguments.sizes.split(",")], arguments.rounds)
        listing(arguments.weightlift, Path(folder), arguments.tensors, arguments.rounds, arguments.python)


if __name__ == "__main__":
    main()
