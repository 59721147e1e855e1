"""Adapters to other libraries and platforms; each imports its library only when it is used."""
