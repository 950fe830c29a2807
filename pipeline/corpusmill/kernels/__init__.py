"""What hot loops use: compiled functions, slices of bytes, content sums.

compiled.py         the decorator of every numba kernel, and 64-bit words of memory; its import brings numba
slices.py           slices of arrays, copied and joined; runs of items of about a size
mapping.py          files as arrays
content.py          content sums as values;  content_kernels.py computes them
advance.py          how far a running step is
shared_bytes.py     bytes that forked processes share
"""
