"""Optimizers, parameter groups, learning-rate schedules, clipping and weight averages."""
