"""Causes of failures, in words for people who do not know ours."""

LOST = "lost"  # how an order ended whose driver died
DIVERGED = "diverged"
MEANINGS = {
    "user": "error in the training code",
    "oom": "out of memory",
    "oversize": "micro-batch too large, halved",
    "diverged": "the metric is not finite",
    "timeout": "ran longer than allowed",
    "stalled": "hung",
    "infra": "process or machine lost",
    "preempt": "machine reclaimed",
    "storage": "no room to write",
    LOST: "its driver died",
}
