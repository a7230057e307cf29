"""Explanations of a sweep's results by a Gaussian process; the class is in `explanation`."""
