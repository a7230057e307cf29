"""Forecasts of pipelines."""

from trainables import Training
from trainables.memory_estimation.pipeline import in_flight


def test_the_first_rank_of_a_pipeline_keeps_most():
    for schedule, most in (("gpipe", 8), ("1f1b", 4), ("interleaved", 5.5)):
        training = Training(strategy="pipeline", pipeline_schedule=schedule, accumulate=8)
        assert in_flight(training, 4, 0) == most
        assert in_flight(training, 4, 0) >= in_flight(training, 4, 3)
