"""Measurements of a trial while it trains: time, memory, gradients, the GPU."""
