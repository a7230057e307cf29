"""What a trial learns with: optimizers, parameter groups, schedules, clipping, averages."""
