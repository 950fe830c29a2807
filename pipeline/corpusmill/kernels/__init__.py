"""What hot loops use: compiled functions, slices of bytes, content sums.

compiled.py         the decorator of every numba kernel; its import brings numba
words.py            64-bit words of bytes, for kernels
slices.py           slices of byte arrays, joined
content.py          content sums as values;  content_kernels.py computes them
runs.py             splits items into runs of about a size
advance.py          how far a running step is
shared_bytes.py     bytes that forked processes share
"""
