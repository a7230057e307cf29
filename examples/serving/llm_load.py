"""Load an LLM server at rising request rates by its own benchmark: a step for each rate."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import hposvc

SGLANG = [sys.executable, "-m", "sglang.bench_serving", "--backend=sglang"]
BENCHMARKS = {  # each with its random prompts, and the flag that names the file of its result
    "vllm": (["vllm", "bench", "serve", "--save-result"], "random", "--result-filename"),
    "sglang": (SGLANG, "random-ids", "--output-file"),
}
flags = argparse.ArgumentParser()
flags.add_argument("server", choices=BENCHMARKS)
flags.add_argument("url")
flags.add_argument("--rates", type=float, nargs="+", required=True, help="requests a second")
flags.add_argument("--seconds", type=float, default=60.0, help="of each rate")
flags.add_argument("--input-tokens", type=int, default=512)
flags.add_argument("--output-tokens", type=int, default=128)
given = flags.parse_args()

command, dataset, to_file = BENCHMARKS[given.server]
for rate in given.rates:
    prompts = max(1, round(rate * given.seconds))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        options = {
            "--base-url": given.url,
            "--dataset-name": dataset,
            "--random-input-len": given.input_tokens,
            "--random-output-len": given.output_tokens,
            "--request-rate": rate,
            "--num-prompts": prompts,
            to_file: file,
        }
        subprocess.run([*command, *(f"{key}={options[key]}" for key in options)], check=True)
        result = json.loads(file.read_text())
    hposvc.report(
        {
            "requests_per_s": result["request_throughput"],
            "tokens_per_s": result["output_throughput"],
            "ttft_p99_ms": result["p99_ttft_ms"],
            "tpot_p99_ms": result["p99_tpot_ms"],
            "failed": prompts - result["completed"],
        }
    )
