"""The state of a training: taken, written, read, put back, exported."""
