#!/usr/bin/env python3
"""Measures what edits hold in memory: an average of checkpoints, and row copies, resizes and transposes of one large matrix.

    benches/compare/edits.py WEIGHTLIFT [SCRATCH] [--average 1] [--inputs 4] [--matrix 4] [--max-memory SIZE]

Files are made in SCRATCH (default target/bench) and removed; sizes are in GiB. For each job: what the plan says it will
hold, the high-water mark of the process (VmHWM, mapped pages included), and the wall-clock time, fsync included. The rate
is of bytes of tensors that are read. Values of the outputs are not looked at: the tests do that.
"""

import argparse
import json
import re
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from index import GIB

ROW = 1024  # elements of a row of the matrix: 4 KiB


def matrix(path, tensors, seed):
    """A safetensors file of float32 matrices whose values repeat every 4 MiB; `tensors` is name and rows of each."""
    header, at = {}, 0
    for name, rows in tensors:
        header[name] = {"dtype": "F32", "shape": [rows, ROW], "data_offsets": [at, at + rows * ROW * 4]}
        at += rows * ROW * 4
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    piece = b"".join(struct.pack("<f", ((n * 7 + seed) % 1009) / 1009 - 0.5) for n in range(ROW * ROW))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for start in range(0, at, len(piece)):
            file.write(piece[: min(len(piece), at - start)])


def watch(pid, peak, done):
    while not done.wait(0.001):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        peak[0] = max(peak[0], int(found[1]) << 10 if found else 0)


def job(weightlift, title, inputs, output, steps):
    """A line of the table: planned memory, the mark that was reached, seconds, and the rate of what was read."""
    command = [weightlift, "plan", *inputs, output, *steps, "--json"]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    start = time.perf_counter()
    process = subprocess.Popen([weightlift, "convert", *inputs, output, *steps, "--force", "--quiet"])
    peak, done = [0], threading.Event()
    watcher = threading.Thread(target=watch, args=(process.pid, peak, done))
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    if code:
        raise SystemExit(f"{title}: exit {code}")
    read, mib = plan["bytes_read"] + plan["bytes_verified"], 1 << 20
    print(
        f"| {title} | {plan['memory'] / mib:.1f} | {peak[0] / mib:.1f} | {read / GIB:.2f} | {seconds:.1f} | "
        f"{read / seconds / 1e6:.0f} |",
        flush=True,
    )
    output.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weightlift", type=Path)
    parser.add_argument("scratch", nargs="?", type=Path, default=Path("target/bench"))
    parser.add_argument("--average", type=float, default=1, metavar="GIB")
    parser.add_argument("--inputs", type=int, default=4)
    parser.add_argument("--matrix", type=float, default=4, metavar="GIB")
    parser.add_argument("--max-memory", metavar="SIZE")
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    limit = ["--max-memory", given.max_memory] if given.max_memory else []
    print("| job | planned MiB | VmHWM MiB | read GiB | s | read MB/s |\n|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(dir=given.scratch) as folder:
        folder = Path(folder)
        output = folder / "out.safetensors"
        if given.inputs > 1:
            rows = int(given.average * GIB) // ROW // 4
            parts = [(f"layer_{n}.weight", rows // 8) for n in range(8)]
            inputs = [folder / f"{n}.safetensors" for n in range(given.inputs)]
            for seed, path in enumerate(inputs):
                matrix(path, parts, seed)
            job(given.weightlift, f"average of {given.inputs} of {given.average:g} GiB", inputs, output, ["--average", *limit])
            [path.unlink() for path in inputs]
        rows = int(given.matrix * GIB) // ROW // 4
        source, table = folder / "matrix.safetensors", folder / "rows.csv"
        matrix(source, [("words", rows)], 0)
        # A tenth of all rows, from places far apart to places far apart.
        count = rows // 10
        table.write_text("".join(f"{n * 7919 % rows},{n * 10}\n" for n in range(count)))
        size = f"{given.matrix:g} GiB"
        job(given.weightlift, f"{count} rows copied in {size}", [source], output, ["--copy-rows", f"words -> words by {table}", *limit])
        job(given.weightlift, f"{size} grown by the mean of its rows", [source], output, ["--resize-rows", f"words={rows + 64}:mean", *limit])
        job(given.weightlift, f"{size} transposed", [source], output, ["--transpose", "words", *limit])
        job(given.weightlift, f"rows copied in {size}, cast to bf16", [source], output,
            ["--copy-rows", "words[0:1000] -> words[5000:6000]", "--dtype", "bf16", *limit])


if __name__ == "__main__":
    main()
