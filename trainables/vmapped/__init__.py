"""Several small trials of one shape, trained at once in one process."""
