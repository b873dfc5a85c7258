"""What the tests ask of TensorFlow alone: objects, Keras, partitioned variables, random bundles."""
import os

import numpy as np

from described import describe_array as describe


def tree(variables, fill):
    """A tf.train.Checkpoint whose objects hang together by the names of the variables."""
    import tensorflow as tf

    root, objects, made = tf.train.Checkpoint(), {}, {}
    objects[""] = root
    for name, (shape, dtype) in variables.items():
        parents = name.split("/")[:-1]
        for depth in range(len(parents)):
            way, above = "/".join(parents[: depth + 1]), "/".join(parents[:depth])
            if way not in objects:
                objects[way] = tf.Module()
                setattr(objects[above], parents[depth], objects[way])
        made[name] = tf.Variable(tf.cast(fill(shape), dtype))
        setattr(objects["/".join(parents)], name.split("/")[-1], made[name])
    return root, made


def with_slots(root, made, names):
    """An optimizer of TensorFlow 1 that keeps m and v for these variables, and what it keeps."""
    import tensorflow as tf

    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    root.optimizer = optimizer
    optimizer._create_slots([made[name] for name in names])
    return {f"{name}/{slot}": optimizer.get_slot(made[name], slot) for name in names for slot in ("m", "v")}


def values(variables):
    return {"tensors": [describe(name, v.numpy(), v.dtype.name) for name, v in sorted(variables.items())]}


def tf_objects_save(request):
    """Saves objects with tf.train.Checkpoint; answers their values and where they are."""
    random = np.random.default_rng(request["seed"])
    root, made = tree(request["variables"], lambda shape: random.standard_normal(shape) * 9)
    slots = with_slots(root, made, request["slots"]) if request.get("slots") else {}
    for slot in slots.values():
        slot.assign(random.standard_normal(slot.shape))
    path = root.save(request["path"])
    return values(made | slots) | {"path": path}


def tf_objects_restore(request):
    """The same objects, empty, restore a checkpoint, which must hold nothing else and nothing less."""
    root, made = tree(request["variables"], np.zeros)
    status = root.restore(request["path"])
    slots = with_slots(root, made, request["slots"]) if request.get("slots") else {}
    status.assert_consumed()
    return values(made | slots)


def tf_latest(request):
    """What TensorFlow takes for the latest checkpoint of a folder, and what else it keeps."""
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(request["path"])
    return {"latest": tf.train.latest_checkpoint(request["path"]), "all": list(state.all_model_checkpoint_paths)}


def keras_model(fill):
    import tf_keras

    first = tf_keras.layers.Dense(4, name="first", input_shape=(3,))
    model = tf_keras.Sequential([first, tf_keras.layers.BatchNormalization(name="norm"), tf_keras.layers.Dense(2, name="second")])
    model.set_weights([fill(weight.shape).astype("float32") for weight in model.get_weights()])
    return model


def keras_values(model):
    return {"tensors": [describe(w.name, v, v.dtype.name) for w, v in zip(model.weights, model.get_weights())]}


def tf_keras_save(request):
    """Weights of a small model, saved by Keras in TensorFlow's format."""
    random = np.random.default_rng(request["seed"])
    model = keras_model(random.standard_normal)
    model.save_weights(request["path"])
    return keras_values(model)


def tf_keras_load(request):
    """The same model, empty, loads weights."""
    model = keras_model(np.zeros)
    status = model.load_weights(request["path"])
    if status is not None:
        status.assert_existing_objects_matched()
    return keras_values(model)


def partitioned_graph(request, initializer):
    import tensorflow as tf

    v1 = tf.compat.v1
    cut = v1.fixed_size_partitioner(request["parts"])
    return v1.get_variable("w", request["shape"], request["dtype"], initializer=initializer, partitioner=cut)


def tf_partitioned_save(request):
    """A partitioned variable of a graph, saved with the plain Saver."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        initializer = v1.random_normal_initializer(seed=request["seed"], dtype=request["dtype"])
        variable = partitioned_graph(request, initializer)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, request["path"], write_meta_graph=request.get("meta", False))
        value = session.run(variable.as_tensor())
    return {"tensors": [describe("w", value, request["dtype"])]}


def tf_partitioned_restore(request):
    """The same graph restores a checkpoint with the plain Saver."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variable = partitioned_graph(request, v1.zeros_initializer())
        v1.train.Saver().restore(session, request["path"])
        value = session.run(variable.as_tensor())
    return {"tensors": [describe("w", value, request["dtype"])]}


def random_tensor(random, tf):
    """A tensor of any dtype that SaveV2 takes."""
    names = (
        "float32 float64 int32 uint8 int16 int8 complex64 int64 bool bfloat16 uint16 complex128 float16 uint32 "
        "uint64 float8_e5m2 float8_e4m3fn int4 uint4 string"
    ).split()
    dtype = tf.as_dtype(names[random.integers(len(names))])
    rank = int(random.integers(0, 4))
    shape = [int(random.integers(0 if random.random() < 0.1 else 1, 9)) for _ in range(rank)]
    if dtype == tf.string:
        texts = [random.bytes(int(random.integers(0, 300))) for _ in range(int(np.prod(shape)))]
        return tf.reshape(tf.constant(texts, tf.string, shape=[len(texts)]), shape)
    if dtype == tf.bool:
        return tf.constant(random.integers(0, 2, shape) > 0)
    if dtype.is_complex:
        return tf.cast(tf.complex(random.standard_normal(shape), random.standard_normal(shape)), dtype)
    if dtype.name in ("int4", "uint4"):
        return tf.cast(tf.constant(random.integers(0, 8, shape), tf.int8), dtype)
    numbers = random.standard_normal(shape) * 100
    return tf.cast(tf.constant(numbers if dtype.is_floating else np.abs(numbers).astype("int64")), dtype)


def cuts(random, tensor):
    """The tensor alone, or its slices along one axis: a specification and a value each."""
    axes = [axis for axis, dim in enumerate(tensor.shape) if dim > 1]
    if not axes or 0 in tensor.shape or tensor.dtype.name in ("string", "int4", "uint4") or random.random() < 0.6:
        return [("", tensor)]
    axis = axes[random.integers(len(axes))]
    dim = tensor.shape[axis]
    ends = sorted(set(int(end) for end in random.integers(1, dim, int(random.integers(1, 4)))) | {dim})
    parts, begin = [], 0
    for end in ends:
        index = tuple(slice(begin, end) if a == axis else slice(None) for a in range(len(tensor.shape)))
        whole = "-" if random.random() < 0.5 else None
        extents = [f"{begin},{end - begin}" if a == axis else whole or f"0,{d}" for a, d in enumerate(tensor.shape)]
        parts.append((" ".join(map(str, tensor.shape)) + " " + ":".join(extents), tensor[index]))
        begin = end
    return parts if len(parts) > 1 else [("", tensor)]


def tf_random(request):
    """Bundles of random tensors, whole or in slices, in one data file or several."""
    import tensorflow as tf

    random = np.random.default_rng(request["seed"])
    bundles = []
    for number in range(request["count"]):
        prefix = os.path.join(request["path"], f"b{number}")
        entries, names = [], set()
        for _ in range(int(random.integers(1, 8))):
            name = "/".join(random.choice(["a", "b:0", "layer_1", "ö", "x.y", "weights"], int(random.integers(1, 4))))
            if name in names:
                continue
            names.add(name)
            entries += [(name, spec, part) for spec, part in cuts(random, random_tensor(random, tf))]
        random.shuffle(entries)
        shards = min(int(random.integers(1, 4)), len(entries)) if random.random() < 0.4 else 1
        prefixes = [prefix] if shards == 1 else [f"{prefix}_temp/part-{n}" for n in range(shards)]
        for shard, of_shard in enumerate(prefixes):
            mine = entries[shard::shards]
            tf.raw_ops.SaveV2(
                prefix=of_shard, tensor_names=[name for name, _, _ in mine],
                shape_and_slices=[spec for _, spec, _ in mine], tensors=[part for _, _, part in mine],
            )
        if shards > 1:
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=prefixes, destination_prefix=prefix, delete_old_dirs=True)
        slices = [[name, spec, part.dtype.name] for name, spec, part in entries]
        bundles.append({"path": prefix, "shards": shards, "slices": slices})
    return {"bundles": bundles}


def tf_same(request):
    """Compares pairs of bundles: names, dtypes, shapes and values, slice by slice as they were written."""
    import tensorflow as tf

    compared, different = 0, []
    for one, other, slices in request["pairs"]:
        readers = [tf.train.load_checkpoint(path) for path in (one, other)]
        maps = [(r.get_variable_to_dtype_map(), r.get_variable_to_shape_map()) for r in readers]
        if maps[0] != maps[1]:
            different.append(f"{other}: other names, dtypes or shapes")
            continue
        names, specs, dtypes = zip(*slices)
        types = [tf.as_dtype(dtype) for dtype in dtypes]
        read = [
            tf.raw_ops.RestoreV2(prefix=path, tensor_names=names, shape_and_slices=specs, dtypes=types)
            for path in (one, other)
        ]
        for name, spec, a, b in zip(names, specs, *read):
            a, b = (np.asarray(tensor.numpy()) for tensor in (a, b))
            same = a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
            compared += 1
            if not same or a.shape != b.shape:
                different.append(f"{other}: {name} {spec}")
    return {"compared": compared, "different": different}


REQUESTS = {
    function.__name__: function
    for function in (
        tf_objects_save, tf_objects_restore, tf_latest, tf_keras_save, tf_keras_load, tf_partitioned_save,
        tf_partitioned_restore, tf_random, tf_same,
    )
}
