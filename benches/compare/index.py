#!/usr/bin/env python3
"""Times what costs only the index of a TensorFlow checkpoint: renames at several sizes of the data, and a listing.

    benches/compare/index.py WEIGHTLIFT [SCRATCH] [--sizes 0.1,1,4] [--variables 20000] [--rounds 5] [--python PATH]

Checkpoints are made in SCRATCH (default target/bench) and removed. Renames are of every variable of a checkpoint of 200:
in place, into hard links, and with every byte read, verified and written. The listing is that of the command, its start
included, against `tf.train.list_variables` in a process that has imported TensorFlow and listed once.
"""

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GIB = 1 << 30
WARM = """
import statistics, sys, time, tensorflow as tf
times = []
for _ in range(int(sys.argv[2]) + 1):
    start = time.perf_counter()
    count = len(tf.train.list_variables(sys.argv[1]))
    times.append(time.perf_counter() - start)
print(count, statistics.median(times[1:]))
"""


def safetensors(path, count, elements):
    """A file of `count` float32 tensors of `elements` elements each."""
    size = 4 * elements
    header = {
        f"scope/layer_{n:05}/kernel": {"dtype": "F32", "shape": [elements], "data_offsets": [n * size, (n + 1) * size]}
        for n in range(count)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = struct.pack("<f", 0.5) * elements
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(count):
            file.write(values)


def bundle(weightlift, folder, count, elements):
    """The same as a TensorFlow checkpoint; answers its prefix."""
    source, prefix = folder / "source.safetensors", folder / "model.ckpt"
    safetensors(source, count, elements)
    run(weightlift, "convert", source, prefix)
    source.unlink()
    return prefix


def run(*command):
    start = time.perf_counter()
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def renames(weightlift, scratch, gib, rounds):
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        prefix = bundle(weightlift, folder, 200, int(gib * GIB / 4 / 200))
        times = {"in place": [], "--share hardlink": [], "--share none": []}
        for number in range(rounds):
            os.sync()
            forth = ("^scope/", "other/") if number % 2 == 0 else ("^other/", "scope/")
            times["in place"].append(run(weightlift, "convert", prefix, prefix, "--rename", "=".join(forth)))
            for share in ("hardlink", "none"):
                if share == "none" and number > 0:  # for comparison; once is enough
                    continue
                os.sync()
                output = folder / f"{share}.ckpt"
                rename = ("--rename", "^=new/", "--share", share)
                times[f"--share {share}"].append(run(weightlift, "convert", prefix, output, *rename))
                for left in folder.glob(f"{share}.ckpt*"):
                    left.unlink()
        return {name: statistics.median(each) for name, each in times.items()}


def listing(weightlift, scratch, variables, rounds, python):
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        prefix = bundle(weightlift, Path(name), variables, 2)
        ours = statistics.median(run(weightlift, "ls", prefix, "--names-only") for _ in range(rounds))
        table = statistics.median(run(weightlift, "ls", prefix) for _ in range(rounds))
        print(f"ls of {variables} variables: {table * 1e3:.0f} ms; --names-only {ours * 1e3:.0f} ms")
        if python and shutil.which(python):
            command = [python, "-c", WARM, str(prefix), str(rounds)]
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            count, seconds = done.stdout.split()
            print(f"tf.train.list_variables, warm: {float(seconds) * 1e3:.0f} ms for {count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weightlift", type=Path, help="the binary to time")
    parser.add_argument("scratch", nargs="?", type=Path, default=Path("target/bench"))
    parser.add_argument("--sizes", default="0.1,1,4", help="GiB of data (default: %(default)s)")
    parser.add_argument("--variables", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable, help="a Python with TensorFlow")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    for gib in (float(size) for size in options.sizes.split(",")):
        times = renames(options.weightlift, options.scratch, gib, options.rounds)
        shown = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in times.items())
        print(f"rename 200 variables, {gib:g} GiB: {shown}", flush=True)
    listing(options.weightlift, options.scratch, options.variables, options.rounds, options.python)


if __name__ == "__main__":
    main()
