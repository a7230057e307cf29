"""Ray Train's trainers as sweeps: see hposvc docs ray."""

from hposvc.integrations.ray_train import from_trainer

__all__ = ["from_trainer"]
