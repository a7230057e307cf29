import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_function_that_needs_no_torch_does_not_load_it():
    code = (
        "import sys, trainables.runtime.process_state; from trainables import Worker;"
        "from trainables.load import bind, resolve;"
        "worker = Worker.alone({'max_leaf_nodes': 4});"
        f"bind(resolve('{EXAMPLES}/train_trees.py:train'), worker.params)(worker);"
        "trainables.runtime.process_state.baseline();"
        "assert worker.reports[0].metrics['val/accuracy'] > 0.8;"
        "sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
