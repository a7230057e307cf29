"""The Hydra sweeper `hposvc`. Hydra imports these modules in each application: keep them light."""
