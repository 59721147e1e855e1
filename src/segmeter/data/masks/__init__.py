"""Turns what mask files store into label maps: values, colours, numbers of objects, or drawn objects."""
