"""Training: from a step of a training run back to the documents in its batch.

In:  a finished build with its receipts and shards, and the trainer's order: Megatron's index cache, or for a Nanoset
     the seed and the tokens of a sequence, of several folders in the mixture that was planned.
Out: for each sample the records in it, and of these the documents, files and lines (lineage/).

    sample.py             a trainer's samples, their trace, and both as text
    megatron_cache.py     GPTDataset's and BlendedDataset's arrays: sample -> sequences of an .idx
    megatron_samples.py   whether a cache is of this dataset; sequences -> records of its parts
    nanoset_samples.py    nanotron's and datatrove's order: sample -> window of a .ds -> its records; of several folders
                          with weights, by `corpusmill mix`
    runs.py               selects one of the two
    mixture/              the proportions and the order in which a run sees several datasets

    step, batch --(step - 1) x batch--> samples --the trainer's order--> spans of records --lineage--> documents, lines

Steps count from 1 as trainers log them, samples from 0. A batch is `batch` samples in the run's order, on any
rank: Megatron's default data loader (`--dataloader-type single`) and nanotron's work this way. If the batch size grew
during the run, steps do not determine samples; Megatron logs the samples consumed.

Invariants (tests/consumers): the tokens of a traced sample are those that megatron-core and datatrove draw. A cache of
another seed, split, sequence length or dataset is refused, and so is one whose arrays do not fit the files.

Price: of Megatron's arrays the pages of the requested samples, and the lengths of a part's documents, 4 bytes each; of
a Nanoset one permutation of an epoch's windows. Then lineage's price for each document. With a cache of 10^8 samples a
step of 16 takes 0.6 s of one core, one of 1,024 takes 1.0 (benchmarks/trace_step.py), the process's start included.
"""

from corpusmill.training.runs import open_samples
from corpusmill.training.sample import Samples, SampleTrace, render_sample, trace_samples

__all__ = ["SampleTrace", "Samples", "open_samples", "render_sample", "trace_samples"]
