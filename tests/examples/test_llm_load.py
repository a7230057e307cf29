"""The load of an LLM server, by programs that take the flags of vLLM's and SGLang's benchmarks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARK = """
import argparse, json
flags = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--base-url", "--dataset-name", "--backend"):
    flags.add_argument(name)
for name in ("--random-input-len", "--random-output-len", "--num-prompts"):
    flags.add_argument(name, type=int)
flags.add_argument("--request-rate", type=float)
flags.add_argument("--save-result", action="store_true")
flags.add_argument("--result-filename", "--output-file", dest="file")
given, rest = flags.parse_known_args()
assert rest in ([], ["bench", "serve"]), rest
result = {
    "request_throughput": given.request_rate,
    "output_throughput": given.request_rate * given.random_output_len,
    "p99_ttft_ms": 100.0,
    "p99_tpot_ms": 10.0,
    "completed": given.num_prompts - 1,
}
open(given.file, "a").write(json.dumps(result) + chr(10))
"""


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_each_rate_is_a_step_with_what_the_benchmark_measured(tmp_path, server):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "bench_serving.py").write_text(BENCHMARK)
    vllm = tmp_path / "vllm"
    vllm.write_text(f"#!{sys.executable}\n{BENCHMARK}")
    vllm.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    load = ROOT / "examples" / "serving" / "llm_load.py"
    words = [server, "http://127.0.0.1:1", "--rates", "2", "4", "--seconds", "5"]
    done = subprocess.run(
        [sys.executable, load, *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "report: {'requests_per_s': 2.0, 'tokens_per_s': 256.0, 'ttft_p99_ms': 100.0, "
        "'tpot_p99_ms': 10.0, 'failed': 1.0}",
        "report: {'requests_per_s': 4.0, 'tokens_per_s': 512.0, 'ttft_p99_ms': 100.0, "
        "'tpot_p99_ms': 10.0, 'failed': 1.0}",
    ]
