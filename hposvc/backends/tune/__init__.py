"""The Ray Tune backend, which runs orders as a Tune experiment; see backend.py."""
