"""Our searchers and the peers on problems of public suites: COCO's, and MA-BBOB.

`python benchmarks/public.py [--quick] [--table] [--suites NAME ...]` prints Markdown; README.md
says what the figures mean.
"""

import os

if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # numpy reads them when it is imported
    from suites.contest import main

    main()
