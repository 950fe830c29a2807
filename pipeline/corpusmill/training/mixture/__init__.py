"""Mixtures: the proportions and the order in which a training run sees several finished datasets.

In:  folders of finished datasets (each with its dataset.json), a weight for each or one exponent for all, the tokens
     of a sequence, the tokens to train on.
Out: a `Mixture`: draws and epochs of every source as each trainer will actually draw them, and the trainers' files.

    sources.py   what a finished dataset holds for a trainer: tokens, windows of every file, vocabulary; weights as
                 given, or p^alpha of the sources' tokens; which tokens train: by --split of every file, or by files
    order.py     the source drawn at each step: Megatron's blend, nanotron's Nanoset epoch and its repetition
    mixture.py   draws, epochs and unseen samples, for every way to train; refuses incompatible sources
    folders.py   the command: folders in, the mixture and the trainers' files out
    picture.py   the table in the terminal, the bars as one HTML file

Both trainers draw greedily: at step i the source for which `weight * max(i, 1) - drawn` is largest, the first of
equals.

    Megatron    one order over all N samples, of files: a source shares its weight among its files by their tokens.
                Which of a file's tokens train depends on how the data is given, and so do the epochs (sources.py).
    Nanoset     the order over one epoch of sum(windows) samples, its sample being drawn mod windows; then one
                permutation of both, and the same epoch again and again up to N. With weights, a source drawn less often
                than it has windows shows the SAME few windows in every epoch, and the others never.

Invariants: weights are finite, positive, and sum to 1; all sources have one tokenizer, vocabulary and width; draws sum
to the requested samples.

Price: a draw costs one or two nanoseconds per source on one core; counting needs memory only for the sources, an order
10 bytes per sample. No token is read; the lengths in Megatron's indexes are, if --split holds documents out.
"""

from corpusmill.training.mixture.mixture import Mixture, mix
from corpusmill.training.mixture.sources import Source, open_source

__all__ = ["Mixture", "Source", "mix", "open_source"]
