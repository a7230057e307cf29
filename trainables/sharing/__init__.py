"""Several unlike trials in one process, which share a frozen base and take turns."""
