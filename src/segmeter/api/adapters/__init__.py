"""evaluations -> what other libraries and platforms take, and back; each needs that library only where it is used."""
