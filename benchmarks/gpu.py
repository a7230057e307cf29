"""What the training runtime does on a GPU, in parts of at most eight minutes each.

Parts may run in separate sessions on separate machines; each writes what it measured, or why it
could not, into its own file, and the table is made of these files alone. Needed are torch, numpy,
scikit-learn, transformers, accelerate and lightning; no Ray, no MLflow.

    python benchmarks/gpu.py --part 1 --out results        (a part)
    python benchmarks/gpu.py --out results                 (all parts, one after the other)
    python benchmarks/gpu.py --merge results               (the table)
    python benchmarks/gpu.py --device cpu --quick --out x  (a dry run, without a GPU)
"""

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from gpu_parts import PARTS
from gpu_rows import Setting, merged, run


def main() -> None:
    """Read the command line; measure parts, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=int, choices=PARTS, help="default: all, each in a process")
    parser.add_argument("--out", type=Path, help="folder for the parts' files")
    parser.add_argument("--merge", type=Path, help="folder whose files to make a table of")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="in miniature; figures say nothing")
    options = parser.parse_args()
    if options.merge:
        print(merged(options.merge))
        return
    if options.out is None:
        parser.error("give --out FOLDER, or --merge FOLDER")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU; give --device cpu --quick for a dry run")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part is None:
        for part in PARTS:  # what a part leaves in its process is no other's matter
            subprocess.run([sys.executable, *sys.argv, "--part", str(part)], check=False)
        print(merged(options.out))
        return
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    begun = time.monotonic()
    setting = Setting(device, options.quick)
    for row in run(options.part, PARTS[options.part], setting, command, options.out):
        print(row.what, "-", row.value or row.failed or f"not measured: {row.skipped}", flush=True)
    print(f"part {options.part}: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
