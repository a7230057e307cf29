"""A formula for the memory of a rank under DeepSpeed, whose engine runs on no tensors without data.

Sources: Rajbhandari et al., ZeRO (2020), section 5; of offload, Ren et al., ZeRO-Offload (2021),
section 4.1, and DeepSpeed 0.19.8.
"""

from dataclasses import replace

from trainables.memory_estimation.memory_tracker import MemoryBreakdown
from trainables.training import Training

BUCKET = 4 * 50_000_000  # bytes of DeepSpeed's gradient buffer, see parallel/deepspeed.py
LIVE = 4 * 1_000_000_000  # bytes of weights that DeepSpeed's stage 3 keeps gathered (its default)


def estimate_memory(
    whole: MemoryBreakdown, training: Training, ranks: int, gpu: bool
) -> MemoryBreakdown:
    """Compute DeepSpeed's memory by a formula from that of one rank with the whole weights.

    Each rank updates a flat 32-bit copy of its share of the weights. Stage 1 shards these copies
    and the optimizer's state, stage 2 also the gradients, stage 3 also the weights except those
    kept gathered. On a CPU the gradient buffer of stages 1 and 2 is hardly written to.

    With offload at stages 1 and 2, a rank keeps for its share in the CPU's memory the copy that is
    updated, the copy sent to the GPU, the gradients, and the optimizer's state. The weights stay on
    the GPU, gradients leave with their buffer; at stage 1 those of other ranks' shares stay until
    the update. Offload at stage 3 is not taken into account here.
    """
    stage, elsewhere = training.zero_stage, training.cpu_offload and training.zero_stage < 3
    copy, optimizer, host = whole.gradients // ranks, whole.optimizer // ranks, 0
    gradients = whole.gradients if stage == 1 else copy
    if elsewhere:
        host = 3 * whole.gradients // ranks + optimizer
        gradients = whole.gradients if stage == 1 else 0
        copy = optimizer = 0
    parameters = (whole.parameters // ranks if stage == 3 else whole.parameters) + copy
    exchange = BUCKET if gpu or stage == 3 else 0
    if stage == 3:
        exchange += min(whole.parameters, LIVE)
    peak = parameters + optimizer + gradients + whole.activations + whole.buffers + exchange
    return replace(
        whole,
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        exchange=exchange,
        peak=peak,
        fullest="backward",
        host=host,
    )
