"""Optuna's objectives, samplers and studies: see hposvc docs optuna."""

from hposvc.integrations.optuna import Sampler, Storage, find_parameters, from_study, run, to_study

__all__ = ["Sampler", "Storage", "find_parameters", "from_study", "run", "to_study"]
