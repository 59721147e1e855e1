"""What goes on around the loop: history, loggers, signals, throughput, determinism, divergence."""
