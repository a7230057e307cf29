"""How far what several ranks learn may be from what one rank learns."""

# Of losses near 1: what rounding makes of ranks' other order of sums in some epochs.
CLOSE = {
    "64-true": 1e-9,
    "32-true": 1e-4,
    "bf16-mixed": 0.08,
    "16-mixed": 0.05,
    "bf16-true": 0.15,
    "16-true": 0.05,
}
# Means over ranks of what is clipped, or divided by its own size, are others than of the gradient.
LOCAL_DIFFERS = ("clip", "optimizer", "layer_decay")
CALM = 2.0**8  # a loss scale at which no gradient of these tests overflows
