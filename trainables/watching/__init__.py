"""What a trial shows of itself while it trains: time, memory, gradients, the GPU."""
