#!/usr/bin/env bash
# Makes examples/train_digits/data/digits.csv again from the wheel that carries it, and checks that nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" scikit-learn==1.9.1
python3 - "$work" <<'PY'
import glob, gzip, hashlib, sys, zipfile

wheel, = glob.glob(sys.argv[1] + "/*.whl")
data = gzip.decompress(zipfile.ZipFile(wheel).read("sklearn/datasets/data/digits.csv.gz"))
digest = hashlib.sha256(data).hexdigest()
if digest != "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8":
    sys.exit(f"the wheel's digits have changed: sha256 is {digest}")
with open("examples/train_digits/data/digits.csv", "wb") as file:
    file.write(data)
PY
echo "examples/train_digits/data/digits.csv is as it should be"
