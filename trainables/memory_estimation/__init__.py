"""Estimates of the memory that training will need, made before any of it is allocated."""
