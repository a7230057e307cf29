"""Tools to start, inspect and submit jobs to a Ray cluster."""
