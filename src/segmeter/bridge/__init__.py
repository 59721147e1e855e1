"""NumPy <-> torch: the only crossing, exact in dtype and complete on return."""
