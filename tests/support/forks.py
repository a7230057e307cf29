"""Processes of tests that are forked where torch and our loop are imported, which takes seconds."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["trainables.trainer.fit", "trainables.parallel.ddp"])
