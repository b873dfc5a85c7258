#!/usr/bin/env python3
"""Whether a GPU keeps its promises: the conformance tests, and the rates next to what they are held against.

On a machine with Rust, in a clone of the project:

    python3 benches/gpu/run.py

A machine with a GPU often has none. Then build elsewhere, for the same processor and a C library no newer than that
machine's, and carry this file and two or more programs:

    cargo build --release -p weightlift
    cargo test --release -p weightlift-gpu --no-run        # prints where its test programs lie
    # on the machine with the GPU:
    python3 run.py --weightlift ./weightlift --test ./conformance-0123abcd --test ./failure-4567ef01

The Vulkan loader (libvulkan.so.1; Debian: libvulkan1) and the driver of the GPU must be there.

Exit code 0: all passed. 1: a test failed or a ratio is below the target. 2: nothing could be run. Python 3.9 or newer,
nothing else.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = 0.8


def main():
    arguments = parse()
    print(f"{platform.node()}: {processor()}, {os.cpu_count()} logical cores, {platform.platform()}")
    print(f"{time.strftime('%Y-%m-%d')}; load {load()}\n")
    command = arguments.weightlift or build()
    shown = subprocess.run([command, "devices"], capture_output=True, text=True)
    print(shown.stdout)
    tested = True if arguments.no_tests else conformance(arguments.test)
    report = measure(command, arguments)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n")
    kept = judge(report)
    print(f"\n{'PASS' if tested and kept else 'FAIL'}")
    if report["kind"] == "software":
        print("the adapter is software: its rates say nothing of a GPU; this run shows only that all of it works")
    return 0 if tested and kept else 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weightlift", metavar="PATH", help="a binary that exists; without it, cargo builds one")
    parser.add_argument("--test", metavar="PATH", action="append", default=[], help="a test program that exists; may be repeated")
    parser.add_argument("--no-tests", action="store_true", help="only measure")
    parser.add_argument("--device", default="gpu", help="gpu (the first) or gpu:N; tests always take the first")
    parser.add_argument("--size", metavar="SIZE", help="as `weightlift bench --size`")
    parser.add_argument("--json", metavar="FILE", help="also write what weightlift bench printed")
    return parser.parse_args()


def build():
    run(["cargo", "build", "--release", "-p", "weightlift"])
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(folder / "release" / ("weightlift.exe" if os.name == "nt" else "weightlift"))


def run(command):
    try:
        done = subprocess.run(command, cwd=ROOT)
    except FileNotFoundError:
        fail(f"{command[0]} is not here; hand in what was built elsewhere, as the head of this file says")
    if done.returncode != 0:
        fail(f"{' '.join(command)} ended with {done.returncode}")


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(2)


def conformance(programs):
    """Runs the tests; a machine on which they find no adapter fails them."""
    environment = dict(os.environ, WEIGHTLIFT_GPU_TESTS="require")
    commands = [[program] for program in programs] or [["cargo", "test", "--release", "-p", "weightlift-gpu"]]
    passed = True
    for command in commands:
        start = time.monotonic()
        try:
            done = subprocess.run(command, env=environment, cwd=ROOT if command[0] == "cargo" else None)
        except OSError as error:
            fail(f"{command[0]}: {error}")
        name, seconds = os.path.basename(command[-1] if len(command) == 1 else "cargo test"), time.monotonic() - start
        passed &= report_line(done.returncode == 0, f"tests: {name}", f"{seconds:.0f} s")
    print()
    return passed


def measure(command, arguments):
    # What is measured here is kept for nobody: the machine may be lent.
    with tempfile.TemporaryDirectory() as cache:
        size = ["--size", arguments.size] if arguments.size else []
        start = time.monotonic()
        done = subprocess.run(
            [command, "bench", "--device", arguments.device, "--json", *size],
            capture_output=True,
            text=True,
            env=dict(os.environ, WEIGHTLIFT_CACHE=cache),
        )
    if done.returncode != 0:
        fail(done.stderr.strip())
    report = json.loads(done.stdout)
    print(f"{report['device']}: {report['name']}, {report['backend']}, {report['kind']}, {report['driver']}")
    tile, tiles = report["tile_bytes"] / 2**20, report["tiles"]
    print(f"measured in {time.monotonic() - start:.0f} s; {tiles} tiles of {tile:.0f} MiB; "
          f"kernels alone over {report['kernel_bytes'] / 2**20:.0f} MiB; {report['threads']} threads of the processor")
    return report


def judge(report):
    """Prints every ratio; those with a target pass or fail."""
    gb = 1e9
    print("\nGB of source a second, and ratios:\n")
    print(f"{'':16}  {'kernel':>8} {'x copy':>7}  {'memory':>8} {'x bare':>7}  {'CPU':>8} {'x CPU':>7}  {'both':>8} {'x CPU':>7}  best")
    kernels, rings = [], []
    for line in report["lines"]:
        kernel, memory = line["kernel"], line["memory"]
        kernels.append((kernel["bytes_per_second"] / kernel["copy"], line["name"]))
        rings.append((memory["bytes_per_second"] / memory["without_kernel"], line["name"]))
        print(
            f"{line['name']:16}  {kernel['bytes_per_second'] / gb:8.2f} {kernels[-1][0]:7.2f}"
            f"  {memory['bytes_per_second'] / gb:8.2f} {rings[-1][0]:7.2f}"
            f"  {line['cpu'] / gb:8.2f} {memory['bytes_per_second'] / line['cpu']:7.2f}"
            f"  {line['both'] / gb:8.2f} {line['both'] / line['cpu']:7.2f}  {line['best']}"
        )
    print(
        "\nx copy: times a copy on the device that moves as many bytes; x bare: times the same way through memory and\n"
        "ring of tiles with that copy in the kernel's place; x CPU: times all threads of the processor\n"
    )
    passed = True
    for what, ratios in [("kernel against a device-to-device copy", kernels), ("memory to memory against the ring without kernel", rings)]:
        for ratio, name in ratios:
            passed &= report_line(ratio >= TARGET, f"{what}: {name}", f"{ratio:.2f}, at least {TARGET}")
    slower = [line["name"] for line in report["lines"] if line["best"] == "cpu"]
    faster = [line["name"] for line in report["lines"] if line["best"] != "cpu"]
    print(f"\nthe CPU is the better choice for: {', '.join(slower) or 'nothing'}")
    print(f"the device, alone or beside the CPU, is for: {', '.join(faster) or 'nothing'}")
    return passed


def report_line(passed, what, figure):
    print(f"{'PASS' if passed else 'FAIL'}  {what} ({figure})", flush=True)
    return passed


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def load():
    return "/".join(f"{part:.1f}" for part in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    sys.exit(main())
