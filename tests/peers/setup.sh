#!/usr/bin/env bash
# Builds the venv of the frameworks that judge what weightlift writes: TensorFlow, PyTorch, safetensors, NumPy,
# transformers with accelerate.
# usage: tests/peers/setup.sh [DIR]     default: ${XDG_CACHE_HOME:-~/.cache}/weightlift-peers
# Takes about 90 s and 2.8 GB; does nothing where the venv is there already.
set -euo pipefail
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/weightlift-peers}
here=$(cd "$(dirname "$0")" && pwd)
if [ -f "$dir/ready" ] && cmp -s "$here/setup.sh" "$dir/ready"; then
    echo "peers are ready in $dir"
    exit 0
fi
rm -rf "$dir"
"${PYTHON:-python3.11}" -m venv "$dir"
pip() { "$dir/bin/pip" install -q --no-cache-dir "$@"; }
pip tensorflow-cpu==2.21.0 ml_dtypes==0.7.0 safetensors==0.8.0 sympy
# The wheel from the registry is built for CUDA; stub libraries let it be imported without two gigabytes of drivers.
pip --no-deps torch==2.15.0 tf_keras==2.21.0
"$dir/bin/python" "$here/torch_stubs.py" > /dev/null
"$dir/bin/python" -c 'import torch; print("torch", torch.__version__)'
# accelerate asks for a torch with all its drivers, which is there without them.
pip transformers==5.24.0 psutil
pip --no-deps accelerate==1.15.0
TF_CPP_MIN_LOG_LEVEL=3 "$dir/bin/python" -c 'import tensorflow as tf; print("tensorflow", tf.__version__)' 2> /dev/null
cp "$here/setup.sh" "$dir/ready"
