"""Sweeps on a remote Ray cluster: submit them as jobs, and read and steer them from here."""
