"""Orders as a Ray Tune experiment: what stands behind hposvc/backends/ray_tune.py."""
