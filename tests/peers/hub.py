"""What the judge asks transformers, accelerate and NumPy: loaders of whole folders, not of single files."""
import hashlib
import json
import math
import os

BERT = {
    "vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 20,
}


def tensor(name, value):
    """A torch tensor as the answers describe it."""
    import torch

    data = value.detach().contiguous()
    data = data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
    return {"name": name, "dtype": str(value.dtype), "shape": list(value.shape), "sha256": hashlib.sha256(data).hexdigest()}


def model_of(seed):
    """A small BERT with random weights, its decoder tied to the word embeddings."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(seed)
    return BertForMaskedLM(BertConfig(**BERT))


def state_of(model):
    return [tensor(name, value) for name, value in sorted(model.state_dict().items())]


def is_tied(model):
    return model.cls.predictions.decoder.weight.data_ptr() == model.bert.embeddings.word_embeddings.weight.data_ptr()


def hub_save(request):
    """A random BERT in a folder: "safetensors" and "bin" as sets, "pt" as one torch.save with both tied names."""
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards

    folder, kind = request["path"], request["kind"]
    model = model_of(request["seed"])
    os.makedirs(folder, exist_ok=True)
    model.config.save_pretrained(folder)
    if kind == "safetensors":
        model.save_pretrained(folder, max_shard_size=request["shard_size"])
    elif kind == "pt":
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    else:
        state = model.state_dict()
        pattern = "pytorch_model{suffix}.bin"
        split = split_torch_state_dict_into_shards(state, filename_pattern=pattern, max_shard_size=request["shard_size"])
        for file, names in split.filename_to_tensors.items():
            torch.save({name: state[name] for name in names}, os.path.join(folder, file))
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as file:
            json.dump(index, file, indent=2)
    return {"tensors": state_of(model), "files": sorted(os.listdir(folder))}


def transformers_load(request):
    """A folder as from_pretrained loads it, and what a forward pass gives."""
    import torch
    from transformers import BertForMaskedLM

    model, info = BertForMaskedLM.from_pretrained(request["path"], output_loading_info=True)
    with torch.no_grad():
        logits = model.eval()(torch.arange(12).reshape(2, 6)).logits
    lists = {key: sorted(str(item) for item in info.get(key) or []) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    return {"tensors": state_of(model), "tied": is_tied(model), "logits": tensor("logits", logits), **lists}


def accelerate_load(request):
    """A folder as accelerate loads it into an empty model."""
    from accelerate import load_checkpoint_in_model

    model = model_of(999)
    model.tie_weights()
    load_checkpoint_in_model(model, request["path"], strict=False)
    model.tie_weights()
    return {"tensors": state_of(model), "tied": is_tied(model)}


def numpy_load(request):
    """The arrays of an archive, a file or a folder, those in "as" viewed as types of ml_dtypes."""
    import ml_dtypes
    import numpy as np

    path, wanted = request["path"], request.get("as", {})
    if os.path.isdir(path):
        files = sorted(name for name in os.listdir(path) if name.endswith(".npy"))
        arrays = {name[:-4]: np.load(os.path.join(path, name)) for name in files}
    else:
        loaded = np.load(path)
        names = request.get("only", loaded.files if hasattr(loaded, "files") else None)
        arrays = {name: loaded[name] for name in names} if names is not None else {"": loaded}
    tensors = []
    for name, array in arrays.items():
        kind = array.dtype.str
        if name in wanted:
            array = array.view(getattr(ml_dtypes, wanted[name]))
        little = array.astype(array.dtype.newbyteorder("<"))
        digest = hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()
        is_number = name in wanted or array.dtype.kind in "fiub"
        values = array.astype("float64").reshape(-1).tolist() if array.size <= 16 and is_number else None
        values = values and [value if math.isfinite(value) else str(value) for value in values]
        described = {"name": name, "dtype": kind, "shape": list(array.shape), "sha256": digest, "values": values}
        tensors.append({**described, "f_order": bool(array.flags.f_contiguous and not array.flags.c_contiguous)})
    return {"tensors": tensors}


def numpy_save(request):
    """Arrays of every order and width, an archive of them, and what they hold."""
    import numpy as np

    random = np.random.default_rng(request["seed"])
    arrays = {}
    for code in ("f2", "f4", "f8", "c8", "c16", "i1", "i8", "u2", "u4", "b1", "f16", "c32"):
        for order in "<>":
            for layout in "CF":
                raw = random.integers(-100, 100, size=(3, 4)) * (1 if code[0] in "iub" else 0.37)
                if order + code in (">f16", ">c32"):
                    continue  # x87 has no other byte order
                name = f"{'be' if order == '>' else 'le'}_{code}_{layout}"
                arrays[name] = np.asarray(raw).astype(order + code, order=layout)
    os.makedirs(request["path"], exist_ok=True)
    for name, array in arrays.items():
        np.save(os.path.join(request["path"], name + ".npy"), array)
    np.savez(os.path.join(request["path"], "stored.npz"), **arrays)
    np.savez_compressed(os.path.join(request["path"], "deflated.npz"), **arrays)
    tensors = []
    for name, array in arrays.items():
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        if array.dtype.itemsize in (16, 32) and array.dtype.kind in "fc" and array.dtype.str[1:] in ("f16", "c32"):
            digest = None  # six of its sixteen bytes are padding
        else:
            digest = hashlib.sha256(little.tobytes()).hexdigest()
        tensors.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest})
    return {"tensors": tensors}


def bert_tf_save(request):
    """A random BERT as google-research/bert names it in TensorFlow 1, with slots of its optimizer."""
    import numpy as np
    import tensorflow as tf

    hidden, inner = BERT["hidden_size"], BERT["intermediate_size"]
    shapes = {
        "bert/embeddings/word_embeddings": [BERT["vocab_size"], hidden],
        "bert/embeddings/position_embeddings": [BERT["max_position_embeddings"], hidden],
        "bert/embeddings/token_type_embeddings": [2, hidden],
        "cls/predictions/output_bias": [BERT["vocab_size"]],
        "cls/predictions/transform/dense/kernel": [hidden, hidden],
        "cls/predictions/transform/dense/bias": [hidden],
    }
    norms = ["bert/embeddings", "cls/predictions/transform"]
    for layer in range(BERT["num_hidden_layers"]):
        base = f"bert/encoder/layer_{layer}"
        dense = [(f"attention/self/{part}", hidden, hidden) for part in ("query", "key", "value")]
        dense += [("attention/output/dense", hidden, hidden), ("intermediate/dense", hidden, inner), ("output/dense", inner, hidden)]
        for name, rows, columns in dense:
            shapes[f"{base}/{name}/kernel"], shapes[f"{base}/{name}/bias"] = [rows, columns], [columns]
        norms += [f"{base}/attention/output", f"{base}/output"]
    for norm in norms:
        shapes[f"{norm}/LayerNorm/gamma"] = shapes[f"{norm}/LayerNorm/beta"] = [hidden]
    random = np.random.default_rng(request["seed"])
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        for name, shape in shapes.items():
            value = random.standard_normal(shape).astype("float32") * 0.3
            v1.get_variable(name, initializer=value + 1 if name.endswith("gamma") else value)
            v1.get_variable(name + "/adam_m", initializer=value)
        v1.get_variable("global_step", initializer=np.int64(7))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, request["path"])
    return {}


def bert_forward(request):
    """The largest difference between what transformers computes from a converted folder and what NumPy computes from
    the weights of the TensorFlow checkpoint."""
    import math

    import numpy as np
    import tensorflow as tf
    import torch
    from transformers import BertConfig, BertForMaskedLM

    BertConfig(**BERT).save_pretrained(request["folder"])
    model, info = BertForMaskedLM.from_pretrained(request["folder"], output_loading_info=True, torch_dtype=torch.float32)
    ids = np.arange(12).reshape(2, 6)
    with torch.no_grad():
        theirs = model.eval()(torch.tensor(ids)).logits.numpy()

    reader = tf.train.load_checkpoint(request["source"])
    weight = lambda name: reader.get_tensor(name).astype("float64")
    dense = lambda x, name: x @ weight(name + "/kernel") + weight(name + "/bias")
    gelu = lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weight(name + "/LayerNorm/gamma") + weight(name + "/LayerNorm/beta")

    words = weight("bert/embeddings/word_embeddings")
    x = words[ids] + weight("bert/embeddings/position_embeddings")[: ids.shape[1]] + weight("bert/embeddings/token_type_embeddings")[0]
    x = norm(x, "bert/embeddings")
    heads, size = BERT["num_attention_heads"], BERT["hidden_size"] // BERT["num_attention_heads"]
    split = lambda x: x.reshape(x.shape[0], x.shape[1], heads, size).transpose(0, 2, 1, 3)
    for layer in range(BERT["num_hidden_layers"]):
        base = f"bert/encoder/layer_{layer}"
        q, k, v = (split(dense(x, f"{base}/attention/self/{part}")) for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(size)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        context = (scores / scores.sum(-1, keepdims=True)) @ v
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(x + dense(context, f"{base}/attention/output/dense"), f"{base}/attention/output")
        x = norm(x + dense(gelu(dense(x, f"{base}/intermediate/dense")), f"{base}/output/dense"), f"{base}/output")
    x = norm(gelu(dense(x, "cls/predictions/transform/dense")), "cls/predictions/transform")
    ours = x @ words.T + weight("cls/predictions/output_bias")
    missing = sorted(str(item) for item in info["missing_keys"])
    return {"difference": float(np.abs(ours - theirs).max()), "scale": float(np.abs(ours).max()), "missing": missing}


REQUESTS = {
    function.__name__: function
    for function in (hub_save, transformers_load, accelerate_load, numpy_load, numpy_save, bert_tf_save, bert_forward)
}
