#!/usr/bin/env python3
"""Writes cases.txt: arrays and how NumPy 2.4 prints them.

A case is a line `== DTYPE DIMS PRECISION ELEMENTS` and the lines that `print` shows. DIMS is `3x4`, `-` for a scalar.
ELEMENTS are little-endian bytes in hexadecimal digits; the array is these elements over and over.

    python make_cases.py [CASES PER DTYPE AND KIND] [SEED] > cases.txt
"""

import sys

import ml_dtypes
import numpy as np

FLOATS = {
    "f64": (np.float64, np.uint64),
    "f32": (np.float32, np.uint32),
    "f16": (np.float16, np.uint16),
    "f80": (np.longdouble, None),
}
COMPLEX = {"c128": (np.complex128, "f64"), "c64": (np.complex64, "f32"), "c160": (np.clongdouble, "f80")}
INTS = {f"{kind}{bits}": np.dtype(f"{kind}{bits // 8}") for kind in "iu" for bits in (8, 16, 32, 64)}
SMALL = {
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "bc32": ml_dtypes.bcomplex32,
    "c32": ml_dtypes.complex32,
    "i4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "i2": ml_dtypes.int2,
    "u2": ml_dtypes.uint2,
}
SHAPES = [(), (1,), (2,), (3,), (5,), (7,), (12,), (40,), (1, 1), (2, 3), (4, 5), (3, 2, 2), (2, 1, 3, 2), (1, 30)]
LARGE = [(1000,), (1001,), (5000,), (30, 40), (7, 200), (2000, 1), (6, 400), (11, 11, 11), (3, 4, 5, 20), (1, 7, 1, 150)]
EMPTY = [(0,), (0, 3), (3, 0), (2, 0, 4)]


def bits(rng, dtype, word, n):
    if word is None:
        field = rng.integers(0, 32768, n).astype(np.float64)
        near = rng.integers(16383 - 80, 16383 + 80, n).astype(np.float64)
        field = np.where(rng.random(n) < 0.5, field, near)
        out = np.zeros((n, 16), np.uint8)
        mantissa = rng.integers(0, 2**64, n, dtype=np.uint64) | np.where(field > 0, np.uint64(1 << 63), np.uint64(0))
        mantissa = np.where(field == 0, mantissa & np.uint64((1 << 63) - 1), mantissa)
        out[:, :8] = mantissa.view(np.uint8).reshape(n, 8)
        top = field.astype(np.uint16) | (rng.integers(0, 2, n).astype(np.uint16) << np.uint16(15))
        out[:, 8:10] = top.view(np.uint8).reshape(n, 2)
        return out.reshape(-1).view(dtype)
    size = np.dtype(word).itemsize * 8
    return rng.integers(0, 2**size, n, dtype=np.uint64).astype(word).view(dtype)


def plain(rng, dtype, n):
    return rng.standard_normal(n).astype(dtype)


def spread(rng, dtype, n):
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-12, 12, n)).astype(dtype)


def scaled(rng, dtype, n):
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-9, 10)).astype(dtype)


def special(rng, dtype, n):
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 1e-5, 1e8, 0.1], dtype)
    picked = rng.choice(values, rng.integers(1, 5))
    return rng.choice(picked, n)


def tiny(rng, dtype, n):
    least = np.finfo(dtype).smallest_subnormal
    return least * rng.integers(-20, 2000, n).astype(dtype)


def whole(rng, dtype, n):
    return rng.integers(-(10 ** rng.integers(1, 10)), 10 ** rng.integers(1, 10), n).astype(dtype)


def ties(rng, dtype, n):
    return (rng.integers(0, 4000, n) / 2.0 ** rng.integers(0, 12) * 2.0 ** rng.integers(0, 14)).astype(dtype)


def powers(rng, dtype, n):
    info = np.finfo(dtype)
    return np.ldexp(np.ones(n, dtype), rng.integers(info.minexp - 5, info.maxexp, n).astype(np.int32))


def edges(rng, dtype, n):
    near = rng.choice(np.array([1e-4, 1e3, 1e6, 1e8, 1e16, 1.0, 1000.0, 9.9999999995, 0.99999999999], np.float64), n)
    out = near.astype(dtype)
    return np.where(rng.random(n) < 0.5, out, np.nextafter(out, np.array(rng.choice([0, np.inf]), dtype)))


def decimals(rng, dtype, n):
    return (rng.integers(-9999, 9999, n) / 10.0 ** rng.integers(0, 6)).astype(dtype)


KINDS = [plain, spread, scaled, special, tiny, whole, ties, powers, edges, decimals]


def emit(name, array, unit, precision):
    unit = np.ascontiguousarray(unit)
    dims = "x".join(map(str, array.shape)) or "-"
    text = unit.tobytes().hex() or "-"
    with np.printoptions(precision=precision):
        print(f"== {name} {dims} {precision} {text}\n{array!s}")


def case(rng, name, values, shapes):
    shape = shapes[rng.integers(len(shapes))]
    count = int(np.prod(shape))
    unit = values(min(max(count, 1), 37))
    precision = int(rng.choice([8, 8, 8, 0, 1, 2, 3, 4, 6, 10, 17, 25]))
    array = np.resize(unit, shape) if count else np.zeros(shape, unit.dtype)
    emit(name, array, unit, precision)


def bounds(name, dtype):
    """Where the form changes: 0.0001, the largest number without a power of ten, a ratio of 1000, and decimals that lie
    just between two numbers."""
    large = {"f16": 1e3, "f32": 1e6}.get(name, 1e8)
    for value in (1e-4, large, 1e16 if name in ("f64", "f80") else large):
        at = dtype(value)
        for near in (np.nextafter(at, dtype(0)), at, np.nextafter(at, dtype(np.inf))):
            emit(name, *[np.array([near], dtype)] * 2, 8)
            emit(name, *[np.array(near, dtype)] * 2, 8)
    for least in (1.0, 0.7, 0.011):
        least = dtype(least)
        for most in (np.nextafter(least * dtype(1000), dtype(0)), least * dtype(1000)):
            for last in (most, np.nextafter(most, dtype(np.inf))):
                emit(name, *[np.array([least, last], dtype)] * 2, 3)
    bits = np.finfo(dtype).nmant
    for shift in range(2, 12):
        gap, first = 2**shift, 2 ** (bits + shift)
        if first >= np.finfo(dtype).max:
            break
        for odd in (0, 1):
            middles = range(first + odd * gap + gap // 2, first + 9000 * gap, 2 * gap)
            middle = next((middle for middle in middles if middle % 10 ** len(str(gap)) == 0), None)
            if middle is not None:
                emit(name, *[np.array(dtype(middle - gap // 2))] * 2, 8)
                emit(name, *[np.array(dtype(middle + gap // 2))] * 2, 8)


def main():
    each = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 2026)
    np.seterr(all="ignore")
    some = SHAPES * 3 + LARGE + EMPTY[:2]
    for name, (dtype, word) in FLOATS.items():
        for kind in KINDS:
            for _ in range(each):
                case(rng, name, lambda n, kind=kind: kind(rng, dtype, n), some)
        for _ in range(3 * each):
            case(rng, name, lambda n: bits(rng, dtype, word, n), some)
            case(rng, name, lambda n: bits(rng, dtype, word, n), [()])
            case(rng, name, lambda n: spread(rng, dtype, n), [()])
        bounds(name, dtype)
    for name, (dtype, half) in COMPLEX.items():
        parts = FLOATS[half]
        for kind in KINDS:
            for _ in range(each):

                def values(n, kind=kind):
                    out = np.empty(n, dtype)
                    out.real, out.imag = kind(rng, parts[0], n), rng.choice(KINDS)(rng, parts[0], n)
                    return out

                case(rng, name, values, some)
                case(rng, name, values, [()])
    for name, dtype in INTS.items():
        info = np.iinfo(dtype)
        for _ in range(each):
            case(rng, name, lambda n: rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True), some + EMPTY)
            case(rng, name, lambda n: rng.integers(0, 10, n).astype(dtype), some)
    for _ in range(2 * each):
        case(rng, "bool", lambda n: rng.integers(0, 2, n).astype(bool), some + EMPTY)
    for name, dtype in SMALL.items():
        word = {1: np.uint8, 2: np.uint16, 4: np.uint32}[np.dtype(dtype).itemsize]
        width = {"4": 16, "2": 4}.get(name[1:], {"f6e2m3": 64, "f6e3m2": 64, "f4e2m1": 16}.get(name, 0))
        for _ in range(2 * each):
            top = width or 2 ** (8 * np.dtype(word).itemsize)
            case(rng, name, lambda n: rng.integers(0, top, n).astype(word).view(dtype), some)
    for name in ("bc32", "c32"):
        emit(name, *[np.array([0, 1 + 2j, 0.1 - 3e-9j, complex(-0.0, -0.0), 1e30, -1j, np.nan], SMALL[name])] * 2, 8)
    emit("bf16", *[np.arange(0x3F80, 0x4080, dtype=np.uint16).view(ml_dtypes.bfloat16)] * 2, 8)
    for name in ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3b11fnuz", "f8e8m0fnu"):
        emit(name, *[np.arange(256, dtype=np.uint8).view(SMALL[name])] * 2, 8)


main()
