"""The Gaussian-process searcher, on numpy and scipy alone; the class is in `searcher`."""
