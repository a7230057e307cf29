"""The Ray Tune backend, whose slots are the trials of a Tune experiment; see backend.py."""
