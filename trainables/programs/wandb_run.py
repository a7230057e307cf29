"""Runs of W&B that a trial's code leaves open in a process that goes on to the next trial.

`wandb.init` returns a run that is open already, with the configuration of the trial before. Nothing
here imports wandb.
"""

import sys


def open_run() -> object | None:
    """Return the open run of this process; None: there is none, or wandb was never imported."""
    return getattr(sys.modules.get("wandb"), "run", None)


def finish_run(before: object | None, failed: bool) -> list[str]:
    """Finish the run that an order has left open.

    Args:
        before: the run that was open before the order; it belongs to the process, and stays.
        failed: W&B shows the run as failed.

    Returns:
        why the run is still open, as a sentence; empty: it is not.
    """
    run = open_run()
    if run is None or run is before:
        return []
    try:
        run.finish(exit_code=int(failed))  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - W&B's errors are no failure of the trial
        return [f"W&B could not finish its run: {error}"]
    return []
