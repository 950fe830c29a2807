"""Planted faults of what decides whether a step runs again: a fingerprint that lacks what can change the bytes."""

from __future__ import annotations

from tests.faults.fault import Fault

ONCE = "engine.ledger.once"
SETTINGS = '"settings": self.settings,\n                "inputs"'


def _of_settings(stage: str, kept: str) -> tuple[str, str]:
    """The line that names a step's settings, and one that names those of a stage's settings k: v for which `kept` is
    true. The step itself runs with all of them.
    """
    fewer = f"{{k: v for k, v in self.settings.items() if self.stage != {stage!r} or {kept}}}"
    return SETTINGS, SETTINGS.replace("self.settings", fewer)


def _of_inputs(stage: str, *left_out: str) -> tuple[str, str]:
    """The line that finds a step's inputs, and one that leaves out, of a stage's steps, those of some stages."""
    line = "names = stage.inputs(self, unit)"
    kept = f"[step for step in stage.inputs(self, unit) if stage.name != {stage!r} or step[0] not in {left_out}]"
    return line, f"names = {kept}"


COUNTS = "{n: [[*o[:2], sum(s[2] - s[1] for s in o[2])] for o in v[n]] for n in v}"
BEGINS = (
    SETTINGS,
    SETTINGS.replace(
        "self.settings",
        f"{{k: {COUNTS} if (self.stage, k) == ('export', 'outputs') else v for k, v in self.settings.items()}}",
    ),
)
"""How many records a file has, instead of which of which cells."""

# fmt: off
REUSE = [
    Fault("no fingerprint names the inputs", ONCE,
          '"inputs": [receipt.digest for receipt in self.inputs],', '"inputs": [],', edit="same size"),
    Fault("no fingerprint names the inputs, and a document is appended", ONCE,
          '"inputs": [receipt.digest for receipt in self.inputs],', '"inputs": [],', edit="append"),
    Fault("no fingerprint names the settings", ONCE,
          '"settings": self.settings,\n                "inputs"',
          '"settings": {},\n                "inputs"', edit="seed"),
    Fault("no fingerprint names the last input", ONCE,
          "for receipt in self.inputs],", "for receipt in self.inputs[:-1]],", edit="append"),
    Fault("a receipt's digest leaves out what was written", "engine.ledger.receipt",
          '"outputs": [asdict(output) for output in self.outputs],', '"outputs": [],', edit="same size"),
    Fault("a receipt's digest knows sizes of outputs alone", "engine.ledger.receipt",
          "[asdict(output) for output in self.outputs]", "[output.size_bytes for output in self.outputs]",
          edit="same size"),
    Fault("download leaves out what a file is", "sources.stages.download",
          '"identity": file.identity}', '"identity": ""}', edit="same size"),
    Fault("files.json leaves out the checksum of what was downloaded", "sources.stages.download",
          '"checksum": str(checksum), "part"', '"checksum": "xxh3_128:" + 32 * "0", "part"', edit="same size"),
    Fault("files.json leaves out the part", "sources.stages.download",
          "part = plain(file.part) if file.part else None\n        seen",
          "part = None\n        seen",
          "frames", edit="other cut"),
    Fault("index leaves out the field of the text", ONCE, *_of_settings("index", "k != 'text_field'"),
          edit="text field"),
    Fault("anchor leaves out the least length", ONCE, *_of_settings("anchor", "k != 'minimum_bytes'"),
          edit="minimum bytes"),
    Fault("match leaves out the least length", ONCE, *_of_settings("match", "k != 'minimum_bytes'"),
          edit="minimum bytes"),
    Fault("shared leaves out the anchors", "engine.build",
          *_of_inputs("shared", "anchor", "reference_index"), edit="minimum bytes"),
    Fault("the digest of many inputs leaves out the last shard", "engine.build",
          "digest_of_many(digests.of(units))", "digest_of_many(digests.of(units[:-1]))", edit="last file"),
    Fault("settle leaves out the answers", "engine.build",
          *_of_inputs("settle", "context", "reference_context"), edit="last file"),
    Fault("match leaves out the answers", "engine.build",
          *_of_inputs("match", "border", "reference_border"), edit="last file"),
    Fault("union leaves out what stays", ONCE, *_of_settings("union", "k != 'keep'"), edit="keep"),
    Fault("union leaves out the share of spans", ONCE, *_of_settings("union", "k != 'fuzzy_share'"),
          edit="fuzzy share"),
    Fault("union leaves out what the partitions found", "engine.build",
          *_of_inputs("union", "match"), edit="minimum bytes"),
    Fault("writeback leaves out the ranges", "engine.build",
          *_of_inputs("writeback", "union", "refine"), edit="minimum bytes"),
    Fault("writeback leaves out what becomes of empty documents", ONCE,
          *_of_settings("writeback", "k != 'drop_empty'"), edit="drop empty"),
    Fault("tokenize leaves out the ranges", "engine.build",
          *_of_inputs("tokenize", "union", "refine"), edit="minimum bytes"),
    Fault("tokenize leaves out the tokenizer's settings", ONCE, *_of_settings("tokenize", "k != 'tokenizer'"),
          edit="eot"),
    Fault("tokenize leaves out the selection", ONCE, *_of_settings("tokenize", "k != 'selection'"),
          "selected", edit="selection"),
    Fault("scatter leaves out the seed", ONCE, *_of_settings("scatter", "k != 'seed'"), edit="seed"),
    Fault("scatter leaves out the number of cells", ONCE, *_of_settings("scatter", "k != 'cells'"),
          edit="cells"),
    Fault("scatter leaves out the length of contexts", ONCE, *_of_settings("scatter", "k != 'context_tokens'"),
          edit="context tokens"),
    Fault("scatter leaves out the packing", ONCE, *_of_settings("scatter", "k != 'packing'"), edit="packing"),
    Fault("scatter leaves out what empty documents become", ONCE,
          *_of_settings("scatter", "k != 'empty_documents'"), "apart", edit="empty documents"),
    Fault("export leaves out where in its cells a file begins", ONCE, *BEGINS, "source order", edit="append"),
    Fault("export leaves out what it writes", ONCE, *_of_settings("export", "k != 'outputs'"), "source order",
          edit="append"),
    Fault("export leaves out the vocabulary", ONCE, *_of_settings("export", "k != 'vocabulary'"), edit="eot"),
    Fault("export leaves out the framing", ONCE, *_of_settings("export", "k != 'framing'"), edit="framing"),
    Fault("export leaves out the loss", ONCE, *_of_settings("export", "k != 'loss'"), edit="loss"),
    Fault("manifest leaves out exports and order", ONCE,
          *_of_settings("manifest", "k not in {'exports', 'order'}"), edit="placeholders"),
    Fault("manifest leaves out the writebacks", "upload.stages.manifest",
          'read = ["export", "writeback", ', 'read = ["export", ', edit="drop empty"),
    Fault("a step of another fingerprint counts as its own", ONCE,
          'return f"{work}/{stage}/{unit}-{fingerprint[:FOLDER_DIGITS]}"',
          'return str(next(iter(sorted((work / stage).glob(f"{unit}-*"))), '
          'work / f"{stage}/{unit}-{fingerprint[:FOLDER_DIGITS]}"))', edit="append"),
]
# fmt: on
