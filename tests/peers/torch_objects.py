"""Random objects around tensors, as torch.save takes them, and a comparison that sees identity.

`build(seed)` makes one object. `differences(a, b, ...)` says where two objects differ: values, types, order, which
names lead to one object, and which tensors lie over one storage, and where.
"""
import argparse
import collections
import dataclasses
import datetime
import decimal
import fractions
import math
import pathlib
import random
import types
import uuid

import numpy as np
import torch


@dataclasses.dataclass
class Settings:
    rate: float
    layers: list


class Plain:
    """State in __dict__."""


class Slotted:
    __slots__ = ("left", "right")


class Stateful:
    """State that is no dict."""

    def __init__(self, value):
        self.value = value

    def __getstate__(self):
        return (1, self.value)

    def __setstate__(self, state):
        self.value = state[1]


class Called:
    """Made again by a call of a function of one's own."""

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return called, (self.value,)


def called(value):
    return Called(value)


class OwnDict(dict):
    pass


class OwnList(list):
    pass


class OwnTensor(torch.Tensor):
    pass


Pair = collections.namedtuple("Pair", "first second")

FLOATS = [torch.float64, torch.float32, torch.float32, torch.float16, torch.bfloat16]
NARROW = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
LATE = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]


class Builder:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.legacy = self.random.random() < 0.3
        self.protocol = self.random.choice([2, 2, 3, 4, 5])
        self.tensors, self.shared, self.left = [], [], 40
        self.generator = torch.Generator().manual_seed(seed)

    def shape(self, most=4):
        return [self.random.choice([0, 1, 2, 3, 3, 4, 5]) for _ in range(self.random.randint(0, most))]

    def dtype(self):
        kinds = [FLOATS, FLOATS, FLOATS, INTS, COMPLEX] + ([] if self.legacy else [NARROW, LATE])
        return self.random.choice(self.random.choice(kinds))

    def base(self, dtype=None, shape=None):
        """A tensor with a storage of its own. Floating-point values stay in the range of float16."""
        dtype, shape = dtype or self.dtype(), self.shape() if shape is None else shape
        if dtype in NARROW:
            return torch.randn(shape, generator=self.generator).to(dtype)
        if dtype in LATE:
            return torch.randint(0, 60000, shape, generator=self.generator).to(dtype)
        if dtype == torch.bool or not (dtype.is_floating_point or dtype.is_complex):
            low, high = (0, 2) if dtype == torch.bool else (0, 100)
            return torch.randint(low, high, shape, generator=self.generator).to(dtype)
        return torch.randn(shape, generator=self.generator, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)

    def view(self, tensor):
        """Another view of the storage of a tensor."""
        if tensor.dtype in NARROW + LATE or tensor.dim() == 0 or tensor.numel() == 0:
            return tensor[...]
        axis = self.random.randrange(tensor.dim())
        size = tensor.shape[axis]
        start = self.random.randrange(size)
        ways = [
            lambda: tensor.narrow(axis, start, self.random.randint(1, size - start)),
            lambda: tensor.select(axis, start),
            lambda: tensor.transpose(axis, self.random.randrange(tensor.dim())),
            lambda: tensor.unsqueeze(axis).expand(*tensor.shape[:axis], self.random.randint(2, 4), *tensor.shape[axis:]),
            lambda: tensor[(slice(None),) * axis + (slice(start, None, 2),)],
            lambda: tensor.unfold(axis, min(2, size), 1),
            lambda: tensor[...],
            lambda: tensor.detach(),
            lambda: tensor.view(tensor.shape + (1,)),
        ]
        return self.random.choice(ways)()

    def tensor(self):
        roll = self.random.random()
        if self.tensors and roll < 0.2:
            return self.random.choice(self.tensors)
        if self.tensors and roll < 0.5:
            return self.keep(self.view(self.random.choice(self.tensors).detach()))
        return self.keep(self.dress(self.fresh()))

    def keep(self, tensor):
        if tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu":
            self.tensors.append(tensor)
        return tensor

    def fresh(self):
        roll = self.random.random()
        if roll < 0.05:
            return self.base(self.random.choice(FLOATS), [2, 3, 4, 5]).contiguous(memory_format=torch.channels_last)
        if roll < 0.1:
            return self.base(self.random.choice(FLOATS), [4, 6]).t()
        if roll < 0.14:
            return self.base(torch.float32, [50])[self.random.randint(1, 20):][:self.random.randint(1, 9)]
        return self.base()

    def dress(self, tensor):
        roll = self.random.random()
        learns = tensor.dtype in FLOATS
        if learns and roll < 0.2:
            return torch.nn.Parameter(tensor, requires_grad=self.random.random() < 0.7)
        if learns and roll < 0.25:
            return tensor.detach().requires_grad_()
        if learns and roll < 0.3:
            tensor.tag = self.value(0)
            return tensor
        if learns and roll < 0.34:
            parameter = torch.nn.Parameter(tensor)
            parameter.scheme = "mine"
            return parameter
        if learns and roll < 0.37:
            return tensor.as_subclass(OwnTensor)
        return tensor

    def rare_tensor(self):
        """Tensors of other kinds than strided numbers in memory."""
        matrix = self.base(torch.float32, [4, 6])
        ways = [
            lambda: torch.empty(self.shape(), device="meta", dtype=self.random.choice(FLOATS)),
            lambda: torch.quantize_per_tensor(matrix, 0.5, 3, self.random.choice([torch.qint8, torch.quint8, torch.qint32])),
            lambda: torch.quantize_per_channel(matrix, torch.rand(4) + 0.5, torch.zeros(4, dtype=torch.int64), 0, torch.qint8),
            lambda: (matrix * (matrix > 0.5)).to_sparse(),
            lambda: (matrix * (matrix > 0.5)).to_sparse_csr(),
            lambda: (matrix * (matrix > 0.5)).to_sparse_csc(),
            lambda: self.base(torch.complex64, [3, 2]).conj(),
            lambda: torch._neg_view(self.base(torch.float32, [3])),
            lambda: self.base(torch.complex64, [3]).conj().imag,
            lambda: self.base(torch.complex128, [3, 2]).real,
        ]
        return self.random.choice(ways)()

    def leaf(self):
        roll = self.random.random()
        if roll < 0.6:
            return self.tensor()
        if roll < 0.66:
            return self.rare_tensor()
        return self.value(self.random.randrange(26))

    def value(self, kind):
        pick = self.random
        if kind == 25 and pick.random() < 0.3:
            return Called(pick.choice([3, "x", self.tensor()]))
        if kind == 24 and self.tensors:
            storage = pick.choice(self.tensors).untyped_storage()
            return storage if pick.random() < 0.3 and not self.legacy else None
        values = [
            lambda: pick.randint(-5, 300), lambda: pick.choice([2**31, -2**31, 2**40, 2**63, -2**80, 0, 255, 256, 65536]),
            lambda: pick.choice([1.5, -0.0, math.inf, math.nan, 1e-300]), lambda: None, lambda: pick.random() < 0.5,
            lambda: pick.choice(["", "adam", "größe\n", "a\x00b", "\ud800", "日本", "x" * 300]),
            lambda: bytes(pick.randrange(256) for _ in range(pick.randrange(6))), lambda: bytearray(b"\xffab"),
            lambda: complex(1, -2.5), lambda: range(2, 9, 3), lambda: slice(1, None, 2),
            lambda: datetime.datetime(2020, 1, 2, 3, 4, 5), lambda: decimal.Decimal("1.50"), lambda: fractions.Fraction(2, 3),
            lambda: uuid.UUID(int=5), lambda: pathlib.PurePosixPath("/data/x"), lambda: torch.Size([2, 3]),
            lambda: torch.device("cuda", 1), lambda: torch.bfloat16, lambda: torch.strided,
            lambda: np.float64(pick.random()), lambda: np.int32(7), lambda: np.arange(6, dtype=">i4").reshape(2, 3),
            lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)), lambda: dict, lambda: torch.nn.functional.relu,
        ]
        return values[kind]()

    def key(self):
        pick = self.random
        return pick.choice([
            lambda: pick.choice(["weight", "bias", "layers.0.w", "state", "ü", "0", ""]) + str(pick.randrange(50)),
            lambda: pick.choice(["weight", "bias", "exp_avg", "m.w"]) + str(pick.randrange(50)),
            lambda: pick.randint(-3, 90), lambda: pick.choice([0.5, None, True, (1, "a"), (), b"k"]),
        ])()

    def object(self, depth):
        """A container, or something in place of one."""
        self.left -= 1
        if depth == 0 or self.left < 0:
            return self.leaf()
        if self.shared and self.random.random() < 0.08:
            return self.random.choice(self.shared)
        made = self.random.choice(self.containers())(depth - 1)
        if self.random.random() < 0.3:
            self.shared.append(made)
        return made

    def items(self, depth):
        return [self.object(depth) if self.random.random() < 0.4 else self.leaf() for _ in range(self.random.randint(0, 5))]

    def pairs(self, depth):
        return [(self.key(), value) for value in self.items(depth)]

    def state(self, made, depth):
        for name, value in self.pairs(depth):
            setattr(made, str(name), value)
        return made

    def cyclic(self, depth):
        made = self.items(depth)
        made.append(self.random.choice([made, {"me": made}, (made, 1)]))
        return made

    def slotted(self, depth):
        made = Slotted()
        made.left, made.right = self.object(depth), self.leaf()
        return made

    def module(self, _):
        tied = torch.nn.Linear(3, 3)
        return torch.nn.Sequential(tied, torch.nn.BatchNorm1d(3), tied, torch.nn.Linear(3, 2, bias=False))

    def training(self, _):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}

    def containers(self):
        plain = [
            lambda d: dict(self.pairs(d)), lambda d: dict(self.pairs(d)), lambda d: collections.OrderedDict(self.pairs(d)),
            lambda d: self.items(d), lambda d: self.items(d), lambda d: tuple(self.items(d)),
        ]
        odd = [
            lambda d: collections.defaultdict(list, self.pairs(d)), lambda d: collections.Counter("abca"),
            lambda d: {1, "a", (2, 3)}, lambda d: frozenset([1, "b"]), lambda d: Pair(self.leaf(), self.object(d)),
            lambda d: Settings(0.1, self.items(d)), lambda d: argparse.Namespace(**{str(k): v for k, v in self.pairs(d)}),
            lambda d: types.SimpleNamespace(**{str(k): v for k, v in self.pairs(d)}),
            lambda d: collections.deque(self.items(d), maxlen=9), lambda d: self.state(Plain(), d), self.slotted,
            lambda d: Stateful(self.object(d)), lambda d: OwnDict(self.pairs(d)), lambda d: OwnList(self.items(d)),
            lambda d: self.state(OwnDict(self.pairs(d)), d), self.cyclic, self.module, self.training,
        ]
        return plain * 2 + odd


def build(seed):
    torch.manual_seed(seed)
    builder = Builder(seed)
    made = builder.random.choice(builder.containers())(builder.random.randint(1, 4))
    return made, builder


def save(seed, path):
    """Saves the object of a seed; answers the path, or `None` where torch does not save it."""
    made, builder = build(seed)
    try:
        torch.save(made, path, pickle_protocol=builder.protocol, _use_new_zipfile_serialization=not builder.legacy)
    except RuntimeError:  # a storage beside views of another dtype
        return None
    return path


def check(source, outputs):
    """What is wrong with files that were written from `source`: of (path, dtype of the cast or None) each."""
    wrong = []
    original, plain = torch.load(source, weights_only=False), is_loaded(source)
    for path, cast in outputs:
        found = differences(original, torch.load(path, weights_only=False), getattr(torch, cast) if cast else None)
        if not cast and not found:
            found = differences(original, torch.load(path, weights_only=False, mmap=True))
        wrong += [f"{path}: {what}" for what in found]
        if plain and not is_loaded(path):
            wrong.append(f"{path}: no longer loaded with weights_only=True")
    return wrong


def is_loaded(path):
    try:
        torch.load(path, weights_only=True)
    except Exception:
        return False
    return True


IDENTICAL = (torch.Tensor, torch.UntypedStorage, dict, list, set, bytearray, collections.deque, Plain, Slotted, Stateful,
             Called, Settings, argparse.Namespace, types.SimpleNamespace, torch.nn.Module)
PLAIN = (int, float, complex, str, bytes, bool, type(None), range, slice, datetime.datetime, decimal.Decimal, type,
         fractions.Fraction, uuid.UUID, pathlib.PurePath, torch.device, torch.dtype, torch.layout, types.FunctionType,
         types.BuiltinFunctionType)


def is_lone(tensor):
    """Whether a tensor's values are made anew when it is read: bits that are applied."""
    return tensor.is_conj() or tensor.is_neg()


class Comparison:
    def __init__(self, cast):
        self.cast, self.wrong = cast, []
        self.there, self.back, self.keep = {}, {}, []
        self.views = []

    def say(self, path, what):
        if len(self.wrong) < 5:
            self.wrong.append(f"{path or 'root'}: {what}")

    def same_identity(self, path, a, b):
        """Whether the pair was compared before; says where one object has become two, or two one."""
        known = self.there.get(id(a)), self.back.get(id(b))
        self.keep += [a, b]
        if known == (None, None):
            self.there[id(a)], self.back[id(b)] = id(b), id(a)
            return False
        if known != (id(b), id(a)):
            self.say(path, f"identity of a {type(a).__name__} differs")
        return True

    def compare(self, path, a, b):
        pending = [(path, a, b)]
        while pending and len(self.wrong) < 5:
            path, a, b = pending.pop()
            if type(a) is not type(b):
                self.say(path, f"{type(a)} became {type(b)}")
            elif isinstance(a, IDENTICAL) and self.same_identity(path, a, b):
                continue
            elif isinstance(a, torch.Tensor):
                self.tensor(path, a, b, pending)
            elif isinstance(a, torch.storage.TypedStorage):
                self.storage(path, a._untyped_storage, b._untyped_storage)
            elif isinstance(a, torch.UntypedStorage):
                self.storage(path, a, b)
            else:
                self.value(path, a, b, pending)

    def value(self, path, a, b, pending):
        if isinstance(a, (np.ndarray, np.generic)):
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                self.say(path, f"{a!r} became {b!r}")
        elif isinstance(a, (set, frozenset, torch.Size)):
            if a != b:
                self.say(path, f"{a!r} became {b!r}")
        elif isinstance(a, PLAIN):
            if a is not b and repr(a) != repr(b):
                self.say(path, f"{a!r} became {b!r}")
        elif isinstance(a, dict):
            if [repr(key) for key in a] != [repr(key) for key in b]:
                return self.say(path, f"keys {list(a)} became {list(b)}")
            pending += [(f"{path}.{key!r}", x, y) for key, x, y in zip(a, a.values(), b.values())]
        elif isinstance(a, (list, tuple, collections.deque)):
            if len(a) != len(b):
                return self.say(path, f"length {len(a)} became {len(b)}")
            pending += [(f"{path}[{at}]", x, y) for at, (x, y) in enumerate(zip(a, b))]
        elif isinstance(a, Slotted):
            pending += [(f"{path}.left", a.left, b.left), (f"{path}.right", a.right, b.right)]
        if hasattr(a, "__dict__") and not isinstance(a, PLAIN):
            pending.append((f"{path}.__dict__", a.__dict__, b.__dict__))

    def tensor(self, path, a, b, pending):
        cast = self.cast is not None and a.dtype.is_floating_point and not a.is_meta
        dtype = self.cast if cast else a.dtype
        facts = lambda t: (t.shape, t.layout, t.requires_grad, t.device, t.is_quantized)
        if facts(a) != facts(b) or b.dtype != dtype:
            return self.say(path, f"{facts(a)} {dtype} became {facts(b)} {b.dtype}")
        if getattr(a, "__dict__", None) or getattr(b, "__dict__", None):
            pending.append((f"{path}.__dict__", a.__dict__, b.__dict__))
        if a.is_meta:
            return
        if a.is_quantized:
            if repr(a) != repr(b) or not torch.equal(a.int_repr(), b.int_repr()):
                self.say(path, "another quantized tensor")
        elif a.layout != torch.strided:
            for x, y in zip(parts(a), parts(b)):
                self.values(path, x, y, self.cast if x.dtype.is_floating_point else None)
        else:
            self.values(path, a, b, dtype if cast else None)
            self.views.append((path, a, b))

    def storage(self, path, a, b):
        if bytes(a) != bytes(b):
            return self.say(path, "another storage")
        if self.cast is None:
            self.views.append((path, *(torch.empty(0, dtype=torch.uint8).set_(storage) for storage in (a, b))))

    def values(self, path, a, b, cast):
        a, b = (t.detach().resolve_conj().resolve_neg().contiguous() for t in (a, b))
        if cast is not None and a.dtype == torch.float64:
            a = torch.from_numpy(a.numpy().astype(np.float16))  # torch itself rounds twice
        elif cast is not None:
            a = a.to(cast)
        raw = lambda t: bytes(torch.empty(t.numel(), dtype=t.dtype).copy_(t.reshape(-1)).untyped_storage())
        if raw(a) != raw(b):
            self.say(path, f"values of a {a.dtype} {tuple(a.shape)} differ")

    def storages(self):
        """Which tensors lie over one storage, and where."""
        groups, back = {}, {}
        for path, a, b in self.views:
            if a.numel() == 0 or is_lone(a):
                continue
            here, there = a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()
            if groups.setdefault(here, there) != there:
                self.say(path, "no longer over the storage of another tensor")
            if back.setdefault(there, here) != here:
                self.say(path, "over the storage of a tensor that it had nothing to do with")
        for at, (path, a, b) in enumerate(self.views):
            for _, x, y in self.views[:at]:
                if overlap(a, x) and not (is_lone(a) or is_lone(x)):
                    if (a.stride(), x.stride()) != (b.stride(), y.stride()):
                        self.say(path, f"strides {a.stride()}, {x.stride()} became {b.stride()}, {y.stride()}")
                    if a.storage_offset() - x.storage_offset() != b.storage_offset() - y.storage_offset():
                        self.say(path, "another place among the views of its storage")


def span(tensor):
    start = tensor.data_ptr()
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return (start, start + (reach + 1) * tensor.element_size()) if tensor.numel() else (start, start)


def overlap(a, b):
    (a, b), (x, y) = span(a), span(b)
    return a < y and x < b


def parts(tensor):
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def differences(a, b, cast=None):
    """Where `b` differs from `a`, whose floating-point tensors were cast if `cast` says so."""
    comparison = Comparison(cast)
    comparison.compare("", a, b)
    comparison.storages()
    return comparison.wrong
