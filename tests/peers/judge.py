"""The frameworks as judges: reads a JSON request a line from stdin, answers a JSON line on stdout.

Every answer has "ok" or "error". Tensors are described as the fixtures' manifest does: name, dtype as the framework
prints it, shape, SHA-256 of the little-endian row-major bytes (strings: length as u64 little-endian, then the bytes,
for each element).
"""
import json
import os
import sys

import hub

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # frameworks that print do not disturb the answers

import tf_requests
import training
from described import describe_array, sha


def tf_load(request):
    """All variables of a checkpoint."""
    import numpy as np
    import tensorflow as tf

    reader = tf.train.load_checkpoint(request["path"])
    dtypes = reader.get_variable_to_dtype_map()
    tensors = []
    for name in sorted(dtypes, key=lambda name: name.encode()):
        value = reader.get_tensor(name)
        array = np.array(value, dtype=object) if isinstance(value, (bytes, str)) else np.asarray(value)
        tensors.append(describe_array(name, array, dtypes[name].name))
    return {"tensors": tensors}


def tf_restore_half(request):
    """The graph of foo and dense, built in float16, restores the checkpoint with the plain Saver."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {name: v1.get_variable(name, shape, tf.float16) for name, shape in request["variables"].items()}
        v1.train.Saver().restore(session, request["path"])
        values = {name: session.run(variable) for name, variable in variables.items()}
    return {"tensors": [describe_array(name, value, "float16") for name, value in values.items()]}


def tf_save(request):
    """Saves float32 variables with the plain Saver, for a test that starts in TensorFlow."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    random = np.random.default_rng(request["seed"])
    with tf.Graph().as_default(), v1.Session() as session:
        for name, shape in request["variables"].items():
            v1.get_variable(name, initializer=random.standard_normal(shape).astype("float32"))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, request["path"])
    return {}


def numpy_cast(request):
    """What NumPy makes of the checkpoint's floating-point variables."""
    import ml_dtypes
    import numpy as np
    import tensorflow as tf

    to = np.dtype(getattr(ml_dtypes, request["to"], None) or request["to"])
    reader = tf.train.load_checkpoint(request["path"])
    tensors = []
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype.is_floating:
            with np.errstate(over="ignore"):
                array = np.asarray(reader.get_tensor(name)).astype(to)
            tensors.append(describe_array(name, array, to.name))
    return {"tensors": tensors}


def cast(request):
    """Casts the raw elements of a file, by one framework, into another."""
    import ml_dtypes
    import numpy as np

    def numpy_dtype(name):
        return np.dtype(getattr(ml_dtypes, name, None) or name)

    names = {
        "f": "float", "i": "int", "u": "uint", "bf16": "bfloat16", "bool": "bool", "f8e4m3fn": "float8_e4m3fn",
        "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
        "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e8m0fnu": "float8_e8m0fnu", "f6e2m3": "float6_e2m3fn",
        "f6e3m2": "float6_e3m2fn", "f4e2m1": "float4_e2m1fn",
    }
    source, target = (names.get(request[end]) or names[request[end][0]] + request[end][1:] for end in ("from", "to"))
    raw = np.fromfile(request["source"], dtype="u1")
    with np.errstate(all="ignore"):
        if request["framework"] == "numpy":
            cast = raw.view(numpy_dtype(source)).astype(numpy_dtype(target)).view("u1")
        elif request["framework"] == "torch":
            import torch

            torch.set_num_threads(1)  # threads cut a tensor into parts, each with leftovers of its own
            values = torch.from_numpy(raw.copy()).view(getattr(torch, source))
            cast = values.to(getattr(torch, target)).contiguous().view(torch.uint8).numpy()
        else:
            import tensorflow as tf

            dtype = getattr(tf.dtypes.experimental, target, None) or getattr(tf, target)
            cast = tf.cast(tf.constant(raw.view(numpy_dtype(source))), dtype).numpy().view("u1")
    cast.tofile(request["target"])
    return {}


def torch_version(_):
    import torch

    return {"version": torch.__version__}


def torch_load(request):
    """A state dict, as torch.load gives it. Tensors that share a storage have the same "storage"."""
    import torch

    options = {key: request[key] for key in ("weights_only", "mmap") if key in request}
    loaded = torch.load(request["path"], map_location="cpu", **options)
    tensors, storages, entered = [], {}, []

    def visit(prefix, value):
        if isinstance(value, (dict, list)) and any(value is outer for outer in entered):
            return  # it holds itself
        entered.append(value)
        enter(prefix, value)
        entered.pop()

    def enter(prefix, value):
        if isinstance(value, torch.Tensor) and value.is_nested:
            return  # it has no shape; the manifest does not list it either
        elif isinstance(value, torch.Tensor) and (value.is_meta or value.layout != torch.strided or value.is_quantized):
            tensors.append({"name": prefix, "dtype": str(value.dtype), "shape": list(value.shape), "sha256": ""})
        elif isinstance(value, torch.Tensor):
            view = value.detach().contiguous()
            data = view.reshape(-1).view(torch.uint8).numpy().tobytes() if view.numel() else b""
            storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage()  # before 2.0
            pointer = storage.data_ptr()
            tensors.append({
                "name": prefix, "dtype": str(value.dtype), "shape": list(value.shape), "sha256": sha(data),
                "storage": storages.setdefault(pointer, len(storages)) if view.numel() else None,
            })
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(f"{prefix}.{key}" if prefix else str(key), item)
        elif isinstance(value, (list, tuple)):
            for key, item in enumerate(value):
                visit(f"{prefix}.{key}" if prefix else str(key), item)

    visit("", loaded)
    return {"type": type(loaded).__name__, "tensors": tensors}


def torch_random(request):
    """Saves random objects into a folder, one for each seed of a range."""
    import torch_objects

    seeds = range(request["first"], request["first"] + request["count"])
    saved = [torch_objects.save(seed, os.path.join(request["dir"], f"{seed}.pt")) for seed in seeds]
    return {"saved": [answer for answer in saved if answer]}


def torch_same(request):
    """Where files differ from the objects they were made from: [source, [[output, dtype of the cast], …]] each."""
    import torch_objects

    return {"wrong": [line for source, outputs in request["files"] for line in torch_objects.check(source, outputs)]}


def safetensors_load(request):
    """A file, as the reference reader gives it."""
    from safetensors import deserialize, safe_open

    with open(request["path"], "rb") as file:
        raw = deserialize(file.read())
    tensors = [
        {"name": name, "dtype": value["dtype"], "shape": list(value["shape"]), "sha256": sha(bytes(value["data"]))}
        for name, value in raw
    ]
    with safe_open(request["path"], framework="pt") as opened:
        metadata = opened.metadata()
        loaded = {name: list(opened.get_tensor(name).shape) for name in opened.keys()}
    return {"tensors": tensors, "metadata": metadata, "loaded": loaded}


def rows_job(request):
    """What a recipe of row copies, a set value and a rename must give, computed by NumPy, against both outputs."""
    import numpy as np
    import tensorflow as tf
    import torch

    source = tf.train.load_checkpoint(request["source"])
    wanted = {name: source.get_tensor(name) for name in source.get_variable_to_dtype_map()}
    words = wanted[request["words"]].copy()
    words[request["to"]] = wanted[request["words"]][request["from"]]
    wanted[request["words"]] = words
    row, column, value = request["set"]
    words[row, column] = value
    wanted = {name.replace("bert/", "model/", 1): array for name, array in wanted.items()}
    written = tf.train.load_checkpoint(request["tf"])
    names = sorted(written.get_variable_to_dtype_map())
    assert names == sorted(wanted), (names, sorted(wanted))
    nested = torch.load(request["torch"], weights_only=True)
    assert list(nested) == ["model"], list(nested)
    for name, array in wanted.items():
        for found in (written.get_tensor(name), nested["model"][name].numpy()):
            assert found.dtype == array.dtype and found.shape == array.shape, name
            assert np.array_equal(found, array), name
    return {"tensors": len(wanted)}


def versions(_):
    import ml_dtypes
    import numpy
    import safetensors
    import tensorflow
    import torch

    modules = (ml_dtypes, numpy, safetensors, tensorflow, torch)
    return {"versions": {module.__name__: module.__version__ for module in modules}}


REQUESTS = {
    function.__name__: function
    for function in (tf_load, tf_restore_half, tf_save, numpy_cast, cast, torch_version, torch_load, torch_random, torch_same, rows_job, safetensors_load, versions)
} | tf_requests.REQUESTS

REQUESTS.update(hub.REQUESTS)
REQUESTS.update(training.REQUESTS)

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = REQUESTS[request["ask"]](request)
        answer["ok"] = True
    except Exception as error:  # the test prints it
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
