#!/usr/bin/env python3
"""The same conversion with TensorFlow and PyTorch: a checkpoint in, a float16 .pt out.

    frameworks.py PREFIX OUTPUT.pt [--no-crc32] [--sync]

Prints a line of JSON: seconds of the imports, seconds of the work, the process's VmHWM in bytes.
`--no-crc32` switches off PyTorch's checksums (`torch.serialization.set_crc32_options`); other zip readers then refuse
the file. `--sync` waits until the file is on the disk.
"""

import json
import os
import sys
import time

START = time.perf_counter()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import torch

IMPORTED = time.perf_counter()


def convert(prefix, output):
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    torch.save({name: torch.from_numpy(reader.get_tensor(name)).half() for name in names}, output)


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def main():
    flags = {argument for argument in sys.argv[1:] if argument.startswith("--")}
    paths = [argument for argument in sys.argv[1:] if argument not in flags]
    if len(paths) != 2 or flags - {"--no-crc32", "--sync"}:
        sys.exit(__doc__)
    if "--no-crc32" in flags:
        torch.serialization.set_crc32_options(False)
    start = time.perf_counter()
    convert(*paths)
    if "--sync" in flags:
        with open(paths[1], "rb") as file:
            os.fsync(file.fileno())
    print(json.dumps({"import": IMPORTED - START, "work": time.perf_counter() - start, "peak": peak()}))


if __name__ == "__main__":
    main()
