"""Problems to hold searchers against each other on: `problems.catalogue` has them all."""
