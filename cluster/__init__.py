"""Bring up, inspect and feed a Ray cluster."""
