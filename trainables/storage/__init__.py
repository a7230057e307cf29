"""Checkpoints as folders of files: complete or absent, in a folder or a store. Without torch."""
