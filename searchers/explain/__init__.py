"""What a Gaussian process makes of a sweep's results; the class is in `explanation`."""
