"""The long-lived folder of tests/search/edits.py with its sources in a bucket: streamed there, copied from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from corpusmill.config import DatasetConfig, check_config
from tests.search.edits import LongLivedFolder
from tests.search.folders import Result
from tests.search.settings import Change

BUCKET, PREFIX = "corpus", "dump/"


class SourcesInABucket(LongLivedFolder):
    """Every edit of the corpus is one of the bucket, when the next configuration is asked for."""

    client: ClassVar[Any] = None  # of boto3; the store is that of the environment

    def config(self, wanted: list[Change] | None = None) -> DatasetConfig:
        self.upload({path: path.read_bytes() for path in self.corpus.folder.rglob("*") if path.is_file()})
        values = super().config(wanted).model_dump(mode="json", exclude_none=True)

        def far(path: str) -> str:
            return path.replace(str(self.corpus.folder), f"s3://{BUCKET}/{PREFIX.rstrip('/')}")

        values["source"] |= {"paths": [far(path) for path in values["source"]["paths"]], "stream": True}
        if "budget" in values:
            values["budget"] = {far(path): amount for path, amount in values["budget"].items()}
        return check_config(values, where="the search")

    def from_scratch(self, config: DatasetConfig) -> Result:
        source = config.source.model_copy(update={"stream": False})
        return super().from_scratch(config.model_copy(update={"source": source}))

    def upload(self, files: dict[Path, bytes]) -> None:
        """Let the bucket hold these files of the corpus alone; an object that is as it was is not written again."""
        wanted = {PREFIX + path.relative_to(self.corpus.folder).as_posix(): data for path, data in files.items()}
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX).get("Contents", [])
        there = {item["Key"]: self.client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in listed}
        for key in there.keys() - wanted.keys():
            self.client.delete_object(Bucket=BUCKET, Key=key)
        for key, data in wanted.items():
            if there.get(key) != data:
                self.client.put_object(Bucket=BUCKET, Key=key, Body=data)
