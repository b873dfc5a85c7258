#!/usr/bin/env python3
"""Times weightlift against the floor, `cp`, and TensorFlow with PyTorch. See README.md beside this file.

    benches/compare/run.py [SCRATCH] [--size 1GiB] [--rounds 5] [--python PATH] [--json FILE]
"""

import argparse
import filecmp
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CAST, COPY = ["--dtype", "f16"], []


class Way:
    """One way to do a job: a command whose output files begin with `stem`."""

    def __init__(self, name, command, stem, *, sync, floor=None, job="cast", rounds=None, env=None):
        self.name, self.command, self.stem = name, [str(part) for part in command], stem
        self.sync, self.floor, self.job, self.rounds = sync, floor, job, rounds
        self.env = env
        self.runs, self.peak, self.output, self.details, self.errors = {}, 0, 0, [], None


class Run:
    """What one run took, in seconds; `cpu` is of all its threads, in user and in system mode."""

    def __init__(self, wall, user, system):
        self.wall, self.user, self.system = wall, user, system

    @property
    def cpu(self):
        return self.user + self.system


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scratch", nargs="?", type=Path, help="folder for input and outputs (default: target/bench)")
    parser.add_argument("--size", default="1GiB", help="bytes of the checkpoint, about (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="a Python with TensorFlow and PyTorch")
    parser.add_argument("--python-rounds", type=int, default=3, help="rounds of the frameworks; 0 leaves them out")
    parser.add_argument("--weightlift", type=Path, help="the binary to time, instead of building one")
    parser.add_argument("--only", metavar="REGEX", help="time only the lines whose name matches; floors and cp stay")
    parser.add_argument("--json", metavar="FILE", help="write every single time there")
    return parser.parse_args()


def target_dir():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


def cargo(manifest, *more):
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", str(manifest), *more]
    subprocess.run(command, check=True)


def build(given):
    """The programs, built: weightlift, the floor, and what makes fsync do nothing."""
    target = target_dir()
    if given is None:
        cargo(ROOT / "Cargo.toml", "--bin", "weightlift", "--target-dir", str(target))
    cargo(HERE / "floor" / "Cargo.toml", "--target-dir", str(target / "floor"))
    floor = target / "floor" / "release"
    return (given or target / "release" / "weightlift").resolve(), floor / "floor", floor / "libnosync.so"


def checkpoint(scratch, size, python):
    """The prefix of the input, made where it is missing."""
    prefix = scratch / f"input-{re.sub('[^A-Za-z0-9.]', '', size)}"
    if not prefix.with_name(prefix.name + ".index").exists():
        print(f"making {prefix}", file=sys.stderr)
        subprocess.run([python, HERE / "make_checkpoint.py", prefix, "--size", size], check=True, stdout=sys.stderr)
    return prefix


def weightlift_ways(binary, prefix, scratch, nosync, cores):
    targets = [
        ("TF to torch f16", "pt", CAST, "cast"),
        ("TF to safetensors f16", "safetensors", CAST, "cast"),
        ("TF to TF f16", "tf", CAST, "cast"),
        ("TF to safetensors, unchanged", "safetensors", COPY, "copy"),
    ]
    counts = [(cores, "")] + ([(1, ", 1 thread")] if cores > 1 else [])
    for sync, env in ((False, {"LD_PRELOAD": str(nosync)}), (True, None)):
        for title, to, steps, job in targets:
            for threads, label in counts if to == "pt" else counts[:1]:
                stem = scratch / "out-weightlift"
                command = [binary, "convert", prefix, stem, "--to", to, *steps, "--threads", threads, "--quiet"]
                yield Way(f"weightlift {title}{label}", command, stem, sync=sync, floor=threads, job=job, env=env)


def reference_ways(floor, data, scratch, cores):
    for sync in (False, True):
        for threads in sorted({1, cores}):
            flags = ["--threads", threads] + (["--sync"] if sync else [])
            plural = "thread" if threads == 1 else "threads"
            stem = scratch / "out-floor"
            yield Way(f"floor, {threads} {plural}", [floor, *flags, data, stem], stem, sync=sync, floor=threads)
        stem = scratch / "out-cp"
        copy = ["cp", "--reflink=never", data, stem]
        synced = ["sh", "-c", 'cp --reflink=never "$0" "$1" && sync "$1"', data, stem]
        yield Way("cp", synced if sync else copy, stem, sync=sync, job="copy")


def framework_ways(python, prefix, scratch, rounds):
    for name, flags in (("TensorFlow + PyTorch", []), ("TensorFlow + PyTorch, no CRC-32", ["--no-crc32"])):
        stem = scratch / "out-frameworks"
        command = [python, HERE / "frameworks.py", prefix, stem, *flags]
        yield Way(name, command, stem, sync=False, rounds=rounds)


def outputs(way):
    return sorted(way.stem.parent.glob(way.stem.name + "*"))


def remove_outputs(way):
    for path in outputs(way):
        path.unlink()


def warm(paths):
    """Brings files into the page cache."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def watch(pid, peak, done):
    """Follows the high-water mark of a process's memory, mapped pages included."""
    while not done.wait(0.001):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        peak[0] = max(peak[0], int(found[1]) << 10 if found else 0)


def spawn(way):
    env = {**os.environ, **way.env} if way.env else None
    way.errors = tempfile.TemporaryFile()
    return subprocess.Popen(way.command, stdout=subprocess.PIPE, stderr=way.errors, env=env)


def finish(way, process, start):
    """Waits for the process; the time is that of the whole process, from before its start."""
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if process.returncode:
        way.errors.seek(0)
        sys.exit(f"{' '.join(way.command)}: exit {process.returncode}\n{way.errors.read().decode(errors='replace')}")
    if out.startswith(b"{"):
        way.details.append(json.loads(out))
    return Run(wall, usage.ru_utime, usage.ru_stime)


def prepare(way, inputs):
    """The same start for everybody: nothing there, the disk idle, the input in the cache."""
    remove_outputs(way)
    os.sync()
    warm(inputs)


def measure_memory(way, inputs):
    """A run that is watched, and not timed."""
    prepare(way, inputs)
    start = time.perf_counter()
    process, peak, done = spawn(way), [0], threading.Event()
    watcher = threading.Thread(target=watch, args=(process.pid, peak, done))
    watcher.start()
    finish(way, process, start)
    done.set()
    watcher.join()
    way.peak = peak[0]
    way.output = sum(path.stat().st_size for path in outputs(way))


def same_result(ways):
    """The floor's halves are, byte for byte, the data file of weightlift's TensorFlow checkpoint."""
    floor = next(way for way in ways if way.name.startswith("floor"))
    bundle = next((way for way in ways if "TF to TF f16" in way.name), None)
    if bundle is None:
        return
    for way in (floor, bundle):
        remove_outputs(way)
        finish(way, spawn(way), 0)
    data = bundle.stem.with_name(bundle.stem.name + ".data-00000-of-00001")
    if not filecmp.cmp(floor.stem, data, shallow=False):
        sys.exit(f"{floor.stem} and {data} differ: weightlift and the floor did not do the same")
    for way in (floor, bundle):
        remove_outputs(way)


def measure(ways, inputs, rounds):
    """Every way once a round, each round beginning with another one."""
    for at in range(rounds):
        shift = at * len(ways) // max(rounds, 1)
        for way in ways[shift:] + ways[:shift]:
            if at < (rounds if way.rounds is None else way.rounds):
                prepare(way, inputs)
                start = time.perf_counter()
                way.runs[at] = finish(way, spawn(way), start)
                remove_outputs(way)
        print(f"round {at + 1} of {rounds}", file=sys.stderr)


def median(way, what="wall"):
    return statistics.median(getattr(run, what) for run in way.runs.values())


def ratio(way, other, what="wall"):
    """The median of the ratios within each round: what slows a whole round down cancels out."""
    if other is None:
        return None
    both = [at for at in way.runs if at in other.runs and getattr(other.runs[at], what) > 0]
    found = [getattr(way.runs[at], what) / getattr(other.runs[at], what) for at in both]
    return statistics.median(found) if found else None


def reference(ways, way, prefix):
    """The floor of as many threads, or cp, synced as `way` is."""
    same = (other for other in ways if other.sync == way.sync and other.name.startswith(prefix))
    return next((other for other in same if prefix == "cp" or other.floor == (way.floor or 1)), None)


def shown(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def table(ways, size, sync):
    head = ["", "median s", "least s", "input MB/s", "CPU s"]
    head += ["x floor", "x cp", "CPU x floor", "CPU x cp", "VmHWM MiB", "output MB"]
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for way in ways:
        if way.sync != sync or not way.runs:
            continue
        floor = reference(ways, way, "floor") if way.job == "cast" else None
        cp = reference(ways, way, "cp")
        cells = [
            way.name,
            shown(median(way), 3),
            shown(min(run.wall for run in way.runs.values()), 3),
            shown(size / median(way) / 1e6, 0),
            shown(median(way, "cpu"), 3),
            shown(ratio(way, floor)),
            shown(ratio(way, cp)),
            shown(ratio(way, floor, "cpu")),
            shown(ratio(way, cp, "cpu")),
            shown(way.peak / (1 << 20), 1),
            shown(way.output / 1e6, 0),
        ]
        yield "| " + " | ".join(cells) + " |"


def verdict(what, value, limit, unit="x"):
    if value is None:
        return None
    kept = "kept" if value <= limit else f"missed by {(value / limit - 1) * 100:.0f} %"
    return f"- {what}: {value:.2f}{unit}, at most {limit}{unit}: {kept}"


def promises(ways, index_bytes):
    for way in ways:
        if not way.name.startswith("weightlift") or "1 thread" in way.name or not way.runs:
            continue
        kind = "with fsync" if way.sync else "without fsync"
        cp = ratio(way, reference(ways, way, "cp"))
        if way.job == "cast":
            yield verdict(f"{way.name}, {kind}, to the floor", ratio(way, reference(ways, way, "floor")), 1.25)
            yield verdict(f"{way.name}, {kind}, to cp", cp, 0.6)
        else:
            yield verdict(f"{way.name}, {kind}, to cp", cp, 1.1)
    peak = max((way.peak for way in ways if way.name.startswith("weightlift")), default=0)
    limit = 128 + round(index_bytes / (1 << 20), 2)
    yield verdict("peak memory of all weightlift runs", peak / (1 << 20), limit, " MiB")
    yield from against_frameworks(ways)


def against_frameworks(ways):
    ours = next((way for way in ways if way.name == "weightlift TF to torch f16" and way.sync), None)
    for way in ways:
        if not way.name.startswith("TensorFlow") or ours is None or not ours.runs or not way.runs:
            continue
        timed = way.details[-len(way.runs) :]
        work = statistics.median(run["work"] for run in timed)
        start = statistics.median(run["import"] for run in timed)
        yield (
            f"- {way.name}: {median(way):.2f} s, of them {start:.2f} s imports and {work:.2f} s work; "
            f"weightlift TF to torch f16, fsync included, is {median(way) / median(ours):.1f} times as fast as the "
            f"command, {work / median(ours):.1f} times as fast as the work alone"
        )


def first_line(path, pattern):
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return found[1].strip() if found else "unknown"


def file_system(path):
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [mount for mount in mounts if path.is_relative_to(mount[1])]
    device, _, kind, options = max(inside, key=lambda mount: len(mount[1]))[:4]
    return f"{kind} on {device} ({options})"


def machine(scratch, cores):
    memory = int(first_line("/proc/meminfo", r"MemTotal:\s*(\d+)")) / (1 << 20)
    model = first_line("/proc/cpuinfo", r"model name\s*: (.*)")
    kernel = os.uname()
    load = "/".join(f"{part:.1f}" for part in os.getloadavg())
    return (
        f"{model}, {cores} logical cores, {memory:.0f} GiB memory, {kernel.sysname} {kernel.release}, "
        f"{file_system(scratch)}; load before the first round {load}; {time.strftime('%Y-%m-%d')}"
    )


def report(ways, host, size, index_bytes, rounds):
    yield host
    yield f"Input: {size} bytes of float32, warm in the page cache; {rounds} rounds; times are of whole processes."
    for sync, title in ((False, "Without fsync: into the page cache"), (True, "With fsync: on the disk")):
        yield from ("", f"**{title}**", "")
        yield from table(ways, size, sync)
    yield ""
    yield from filter(None, promises(ways, index_bytes))


def as_json(ways, host, size):
    def runs(way):
        return [{"round": at, **vars(run)} for at, run in way.runs.items()]

    def one(way):
        facts = {"name": way.name, "fsync": way.sync, "command": way.command, "peak": way.peak, "output": way.output}
        return {**facts, "runs": runs(way), "details": way.details}

    return {"schema": "weightlift.compare/1", "machine": host, "input": size, "ways": [one(way) for way in ways]}


def main():
    given = arguments()
    scratch = (given.scratch or target_dir() / "bench").resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    binary, floor, nosync = build(given.weightlift)
    prefix = checkpoint(scratch, given.size, given.python)
    data = prefix.with_name(prefix.name + ".data-00000-of-00001")
    index = prefix.with_name(prefix.name + ".index")
    cores = len(os.sched_getaffinity(0))
    ways = [*reference_ways(floor, data, scratch, cores), *weightlift_ways(binary, prefix, scratch, nosync, cores)]
    if given.python_rounds:
        ways += framework_ways(given.python, prefix, scratch, given.python_rounds)
    if given.only:
        ways = [way for way in ways if way.name.startswith(("floor", "cp")) or re.search(given.only, way.name)]
    host, size, inputs = machine(scratch, cores), data.stat().st_size, [data, index]
    same_result(ways)
    for way in ways:
        measure_memory(way, inputs)
        remove_outputs(way)
    measure(ways, inputs, given.rounds)
    for line in report(ways, host, size, index.stat().st_size, given.rounds):
        print(line)
    if given.json:
        Path(given.json).write_text(json.dumps(as_json(ways, host, size), indent=1) + "\n")


if __name__ == "__main__":
    main()
