"""Start an agent: the function of the verb `agent`."""

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack

from hposvc.backends.process.rank_commands import is_one_of_several, launcher_here
from hposvc.errors import fail
from hposvc.remote.agent.agent import Agent
from hposvc.remote.agent.exchange import AgentExchange
from hposvc.remote.agent.sweep_files import RecordedSweep, Say
from hposvc.remote.http import Http
from hposvc.spec.engines import ENGINES, names_of


def take_trials(
    http: Http, sweep: str, count: int | None, name: str | None, grace_s: float, say: Say
) -> int:
    """Train trials of a server's sweep until it is over, and return how many orders ended here.

    Args:
        count: how many orders to carry out at most; None: all that there are.
        name: by which the server knows this agent; None: that of the Slurm job, or a new one.
        grace_s: seconds from SIGTERM until the ranks are killed.

    Raises:
        SpecError: the sweep's engine has no agents; or a secret or the code is missing here.
        OutOfReach: the server does not answer, or the sweep's trials can't be trained here.
        Interrupted: by Ctrl-C.
    """
    recorded = RecordedSweep.fetch(http, sweep)
    engine = recorded.spec.get("engine")
    chosen = engine.get("type") if isinstance(engine, Mapping) else engine
    engine_type = ENGINES.get(str(chosen))
    if engine_type is None or not engine_type.foreign:
        able = names_of(lambda engine: engine.foreign)
        message = f"is {chosen}: {recorded.id} trains its trials itself; submit it with engine: "
        raise fail(f"{message}{able}", "engine")
    host = socket.gethostname()
    client = name or _name(os.environ, host)
    say(f"agent {client} takes trials of {recorded.id}")
    with ExitStack() as stack:
        exchange = AgentExchange(http, recorded.id, client, host)
        agent = Agent(exchange, recorded, launcher_here(os.environ), stack, grace_s, say)
        return agent.run(count)


def _name(variables: Mapping[str, str], host: str) -> str:
    """Return the name of a Slurm job, which a requeued one keeps; else of this process alone."""
    job = variables.get("SLURM_ARRAY_JOB_ID") or variables.get("SLURM_JOB_ID")
    if job is None:
        return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"
    task = variables.get("SLURM_ARRAY_TASK_ID")
    name = f"slurm-{job}_{task}" if task else f"slurm-{job}"
    if is_one_of_several(variables):
        name += f".{variables['SLURM_STEP_ID']}.{variables['SLURM_PROCID']}"
    return name
