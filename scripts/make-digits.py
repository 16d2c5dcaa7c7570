#!/usr/bin/env python3
"""Makes data/digits/*.idx from the digits table of scikit-learn; needs nothing but Python.

usage: scripts/make-digits.py [digits.csv.gz | scikit_learn-*.whl] [-o FOLDER]

Without a source the wheel of scikit-learn is fetched with pip into a temporary folder.
Prints the sha256 sums of what it wrote.
"""
import argparse
import gzip
import hashlib
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

SEED = 1998             # year of the data set
N_VALID = 360
INSIDE = "sklearn/datasets/data/digits.csv.gz"


def read_source(path):
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
                            "-d", folder, "scikit-learn"], check=True, stdout=sys.stderr)
            return read_source(next(pathlib.Path(folder).glob("*.whl")))
    if zipfile.is_zipfile(path):
        return zipfile.ZipFile(path).read(INSIDE)
    return pathlib.Path(path).read_bytes()


def read_samples(packed):
    """A line holds 64 values of 0 to 16, row by row, and the digit."""
    samples = []
    for number, line in enumerate(gzip.decompress(packed).decode("ascii").splitlines(), 1):
        values = [float(v) for v in line.split(",")]
        if len(values) != 65 or any(v != int(v) or not 0 <= v <= 16 for v in values[:64]) or values[64] not in range(10):
            sys.exit(f"line {number} is not 64 values of 0 to 16 and a digit")
        samples.append(([int(v) for v in values[:64]], int(values[64])))
    if len(samples) != 1797:
        sys.exit(f"{len(samples)} samples, wanted 1797")
    return samples


def valid_numbers(samples):
    """Numbers of the samples for validation: of each digit its share of N_VALID by largest remainders, drawn in the
    order of sha256("SEED:NUMBER"), which any language can repeat."""
    groups = {d: [i for i, s in enumerate(samples) if s[1] == d] for d in range(10)}
    exact = {d: len(g) * N_VALID / len(samples) for d, g in groups.items()}
    share = {d: int(e) for d, e in exact.items()}
    for d in sorted(exact, key=lambda d: (share[d] - exact[d], d))[:N_VALID - sum(share.values())]:
        share[d] += 1
    drawn = set()
    for d, group in groups.items():
        group.sort(key=lambda i: hashlib.sha256(f"{SEED}:{i}".encode()).digest())
        drawn.update(group[:share[d]])
    return drawn


def write(path, data):
    path.write_bytes(data)
    print(f"{hashlib.sha256(data).hexdigest()}  {path.name}")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("source", nargs="?")
    args.add_argument("-o", "--out", type=pathlib.Path,
                      default=pathlib.Path(__file__).resolve().parent.parent / "data" / "digits")
    args = args.parse_args()
    samples = read_samples(read_source(args.source))
    valid = valid_numbers(samples)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", [s for i, s in enumerate(samples) if i not in valid]),
                       ("valid", [s for i, s in enumerate(samples) if i in valid])):
        # 255/16 a step, to the nearest byte, halves up
        pixels = bytes((v * 255 + 8) // 16 for s in part for v in s[0])
        write(args.out / f"{name}-images.idx", struct.pack(">BBBBIII", 0, 0, 8, 3, len(part), 8, 8) + pixels)
        write(args.out / f"{name}-labels.idx", struct.pack(">BBBBI", 0, 0, 8, 1, len(part)) + bytes(s[1] for s in part))


if __name__ == "__main__":
    main()
