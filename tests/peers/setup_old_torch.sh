#!/usr/bin/env bash
# Builds the venv of PyTorch 1.13.1, which judges that what weightlift writes is read by old loaders too.
# usage: tests/peers/setup_old_torch.sh [DIR]     default: ${XDG_CACHE_HOME:-~/.cache}/weightlift-peers-old-torch
# Takes about 60 s and 2 GB; does nothing where the venv is there already.
set -euo pipefail
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/weightlift-peers-old-torch}
here=$(cd "$(dirname "$0")" && pwd)
if [ -f "$dir/ready" ] && cmp -s "$here/setup_old_torch.sh" "$dir/ready"; then
    echo "the old PyTorch is ready in $dir"
    exit 0
fi
rm -rf "$dir"
"${PYTHON:-python3.11}" -m venv "$dir"
# Without the CUDA libraries it names: stubs stand in for them.
"$dir/bin/pip" install -q --no-cache-dir --no-deps torch==1.13.1
"$dir/bin/pip" install -q --no-cache-dir --no-deps numpy==1.26.4 typing-extensions
"$dir/bin/python" "$here/torch_stubs.py" > /dev/null
"$dir/bin/python" -c 'import torch; print("torch", torch.__version__)'
cp "$here/setup_old_torch.sh" "$dir/ready"
