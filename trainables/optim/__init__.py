"""Optimizers that torch does not have, one a file."""
