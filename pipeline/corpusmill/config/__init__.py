"""One dataset, one configuration: YAML in, a checked `DatasetConfig` out.

    values.py                   types of single values
    sections.py, exports.py     what the sections hold
    dataset.py                  all sections together, and the constraints between them
    places.py                   where a destination keeps a dataset's versions
    starter.py                  a short configuration to begin with
    reading.py                  a file, a text or plain values, checked

Rules of the file:

* every key is known; an unknown one is refused with the nearest valid key and its line,
* nothing that silently changes the dataset's bytes has a default (seed, tokenizer, what deduplication does),
* sizes are numbers with a unit: ``256MiB``, ``10GB``, or plain bytes,
* relative paths start at the root folder: the environment's CORPUSMILL_ROOT, else the current folder. Paths typed on a
  command line start at the current folder.

``corpusmill config example`` prints example.yaml, where every key is explained; ``corpusmill config check FILE``
validates one. This room imports only the standard library, pydantic and YAML: DAG files read configurations when they
are parsed.
"""

from corpusmill.config.dataset import DatasetConfig, absolute, absolute_here, root_folder, work_of
from corpusmill.config.exports import FORMATS, DestinationConfig, ExportsConfig, NumpyConfig, ShuffleConfig
from corpusmill.config.places import dataset_folder, named_version, version_folder
from corpusmill.config.reading import EXAMPLE, check_config, load_config, parse_config
from corpusmill.config.sections import (
    ALL_BUT_ONE,
    FORGOTTEN,
    LEAST_MINIMUM_BYTES,
    BenchmarkConfig,
    CardConfig,
    DecisionsConfig,
    DedupConfig,
    ForgetConfig,
    FramingConfig,
    LockConfig,
    PackingConfig,
    ReferenceConfig,
    SelectionConfig,
    SourceConfig,
    StepConfig,
    TokenizerConfig,
)
from corpusmill.config.values import LARGEST_SIZE

__all__ = [
    "ALL_BUT_ONE",
    "EXAMPLE",
    "FORGOTTEN",
    "FORMATS",
    "LARGEST_SIZE",
    "LEAST_MINIMUM_BYTES",
    "BenchmarkConfig",
    "CardConfig",
    "DatasetConfig",
    "DecisionsConfig",
    "DedupConfig",
    "DestinationConfig",
    "ExportsConfig",
    "ForgetConfig",
    "FramingConfig",
    "LockConfig",
    "NumpyConfig",
    "PackingConfig",
    "ReferenceConfig",
    "SelectionConfig",
    "ShuffleConfig",
    "SourceConfig",
    "StepConfig",
    "TokenizerConfig",
    "absolute",
    "absolute_here",
    "check_config",
    "dataset_folder",
    "load_config",
    "named_version",
    "parse_config",
    "root_folder",
    "version_folder",
    "work_of",
]
