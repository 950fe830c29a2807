"""A build's provenance as OpenLineage's objects, for Airflow's provider; imported only if the provider is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet


def operator_lineage(provenance: Mapping[str, Sequence[Mapping[str, Any]]]) -> OperatorLineage[Any, Any]:
    """The provenance of corpusmill.upload.stages.report, with its counts and versions as facets."""
    inputs = [
        InputDataset(
            namespace=source["namespace"],
            name=source["name"],
            inputFacets={
                "inputStatistics": InputStatisticsInputDatasetFacet(
                    rowCount=source["lines"], size=source["bytes"], fileCount=source["files"]
                )
            },
        )
        for source in provenance["inputs"]
    ]
    outputs = [
        OutputDataset(
            namespace=place["namespace"],
            name=place["name"],
            facets={"version": DatasetVersionDatasetFacet(datasetVersion=place["version"])},
            outputFacets={
                "outputStatistics": OutputStatisticsOutputDatasetFacet(
                    rowCount=place["documents"], size=place["bytes"], fileCount=place["files"]
                )
            },
        )
        for place in provenance["outputs"]
    ]
    return OperatorLineage(inputs=inputs, outputs=outputs)
