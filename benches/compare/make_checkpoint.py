#!/usr/bin/env python3
"""Writes a TensorFlow checkpoint with the tensors of a transformer encoder, float32, by TensorFlow's own SaveV2.

    make_checkpoint.py PREFIX [--size 1GiB] [--seed 0]

An embedding of 30522 rows, then as many layers as come nearest to the size asked for. Values are normal with standard
deviation 0.02 (around 1 for the scales of LayerNorm), so that none overflows float16.
"""

import argparse
import os
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

VOCABULARY = 30522
POSITIONS = 512
HIDDEN = (1024, 768, 512, 256, 128, 64, 32, 16)
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def size_of(text):
    """Bytes of `1GiB`, `64MiB`, `5GB`, `4096`."""
    parts = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text.strip())
    if not parts or parts[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size")
    return int(float(parts[1]) * UNITS[parts[2].upper()])


def dense(name, rows, columns):
    return [(f"{name}/kernel", (rows, columns)), (f"{name}/bias", (columns,))]


def norm(name, width):
    return [(f"{name}/gamma", (width,)), (f"{name}/beta", (width,))]


def embeddings(hidden):
    yield "bert/embeddings/word_embeddings", (VOCABULARY, hidden)
    yield "bert/embeddings/position_embeddings", (POSITIONS, hidden)
    yield "bert/embeddings/token_type_embeddings", (2, hidden)
    yield from norm("bert/embeddings/LayerNorm", hidden)


def layer(number, hidden):
    scope = f"bert/encoder/layer_{number}"
    for part in ("query", "key", "value"):
        yield from dense(f"{scope}/attention/self/{part}", hidden, hidden)
    yield from dense(f"{scope}/attention/output/dense", hidden, hidden)
    yield from norm(f"{scope}/attention/output/LayerNorm", hidden)
    yield from dense(f"{scope}/intermediate/dense", hidden, 4 * hidden)
    yield from dense(f"{scope}/output/dense", 4 * hidden, hidden)
    yield from norm(f"{scope}/output/LayerNorm", hidden)


def byte_count(tensors):
    return sum(4 * int(np.prod(shape)) for _, shape in tensors)


def tensors_for(size):
    """Names and shapes: the widest model whose embedding is at most a quarter of the size."""
    fits = (hidden for hidden in HIDDEN if 4 * byte_count(embeddings(hidden)) <= size)
    hidden = next(fits, HIDDEN[-1])
    layers = round((size - byte_count(embeddings(hidden))) / byte_count(layer(0, hidden)))
    tensors = list(embeddings(hidden))
    for number in range(max(layers, 1)):
        tensors.extend(layer(number, hidden))
    return tensors


def values(random, name, shape):
    array = random.standard_normal(shape, dtype=np.float32)
    array *= np.float32(0.02)
    if name.endswith("/gamma"):
        array += np.float32(1)
    return tf.constant(array)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix")
    parser.add_argument("--size", type=size_of, default=size_of("1GiB"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tensors = tensors_for(arguments.size)
    random = np.random.default_rng(arguments.seed)
    tf.raw_ops.SaveV2(
        prefix=arguments.prefix,
        tensor_names=[name for name, _ in tensors],
        shape_and_slices=[""] * len(tensors),
        tensors=[values(random, name, shape) for name, shape in tensors],
    )
    print(f"{arguments.prefix}: {len(tensors)} tensors, {byte_count(tensors)} bytes")


if __name__ == "__main__":
    main()
