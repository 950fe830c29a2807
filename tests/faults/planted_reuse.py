"""Planted faults of what decides whether a step runs again: a fingerprint that lacks what can change the bytes."""

from __future__ import annotations

from tests.faults.fault import Fault

SETTINGS = '"settings": self.settings,\n                "inputs"'


def _of_settings(stage: str, kept: str) -> tuple[str, str]:
    """The line that names a step's settings, and one that names those of a stage's settings k: v for which `kept` is
    true. The step itself runs with all of them.
    """
    fewer = f"{{k: v for k, v in self.settings.items() if self.stage != {stage!r} or {kept}}}"
    return SETTINGS, SETTINGS.replace("self.settings", fewer)


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
    Fault("no fingerprint names the inputs", "ledger.once",
          '"inputs": [receipt.digest for receipt in self.inputs],', '"inputs": [],', edit="same size"),
    Fault("no fingerprint names the inputs, and a document is appended", "ledger.once",
          '"inputs": [receipt.digest for receipt in self.inputs],', '"inputs": [],', edit="append"),
    Fault("no fingerprint names the settings", "ledger.once",
          '"settings": self.settings,\n                "inputs"',
          '"settings": {},\n                "inputs"', edit="seed"),
    Fault("no fingerprint names the last input", "ledger.once",
          "for receipt in self.inputs],", "for receipt in self.inputs[:-1]],", edit="append"),
    Fault("a receipt's digest leaves out what was written", "ledger.receipt",
          '"outputs": [asdict(output) for output in self.outputs],', '"outputs": [],', edit="same size"),
    Fault("a receipt's digest knows sizes of outputs alone", "ledger.receipt",
          "[asdict(output) for output in self.outputs]", "[output.size_bytes for output in self.outputs]",
          edit="same size"),
    Fault("download leaves out what a file is", "stages.download",
          '"identity": file.identity}', '"identity": ""}', edit="same size"),
    Fault("files.json leaves out the checksum of what was downloaded", "stages.download",
          '"checksum": str(checksum), "part"', '"checksum": "xxh3_128:" + 32 * "0", "part"', edit="same size"),
    Fault("files.json leaves out the part", "stages.download",
          "part = plain(file.part) if file.part else None\n        seen",
          "part = None\n        seen",
          "frames", edit="other cut"),
    Fault("index leaves out the field of the text", "stages.index",
          '{"text_field": source.text_field, "id_field"', '{"id_field"', edit="text field"),
    Fault("anchor leaves out the least length", "stages.anchor",
          '{"minimum_bytes": build.config.dedup.minimum_bytes}', "{}", edit="minimum bytes"),
    Fault("match leaves out the least length", "stages.match",
          '= {"minimum_bytes": build.config.dedup.minimum_bytes, **windows', "= {**windows", edit="minimum bytes"),
    Fault("shared leaves out the anchors", "stages.shared",
          'inputs=lambda build, _unit: whole_index(build)', "inputs=lambda build, _unit: []",
          edit="minimum bytes"),
    Fault("the digest of many inputs leaves out the last shard", "engine.build",
          "digest_of_many(digests.of(units))", "digest_of_many(digests.of(units[:-1]))", edit="last file"),
    Fault("settle leaves out the answers", "stages.settle",
          '*anchors, *whole_answer(build, "context")]', "*anchors]", edit="last file"),
    Fault("match leaves out the answers", "stages.match",
          '("settle", unit), *whole_answer(build, "border")]', '("settle", unit)]', edit="last file"),
    Fault("union leaves out what stays", "stages.union",
          '"keep": dedup.keep, "fuzzy_share"', '"fuzzy_share"', edit="keep"),
    Fault("union leaves out the share of spans", "stages.union",
          '"keep": dedup.keep, "fuzzy_share": dedup.fuzzy_share}', '"keep": dedup.keep}', edit="fuzzy share"),
    Fault("union leaves out what the partitions found", "stages.union",
          'return [(text_stage(build, shard), shard), *anchors, *whole(build, "match")]',
          'return [(text_stage(build, shard), shard), *anchors]', edit="minimum bytes"),
    Fault("writeback leaves out the ranges", "stages.writeback",
          "final_stage(build, shard), cuts_stage(build), *hits]", "final_stage(build, shard), *hits]",
          edit="minimum bytes"),
    Fault("writeback leaves out what becomes of empty documents", "stages.writeback",
          'else {"drop_empty": dedup.drop_empty}', "else {}", edit="drop empty"),
    Fault("tokenize leaves out the ranges", "stages.tokenize",
          "read = [final_stage(build, shard), *([cuts_stage(build)] if removing else [])]",
          "read = [final_stage(build, shard)]",
          edit="minimum bytes"),
    Fault("tokenize leaves out the mode and takes none for removal", "stages.tokenize",
          'settings = {"mode": build.config.dedup.mode, "tokenizer"', 'settings = {"tokenizer"', "annotate",
          edit="no dedup"),
    Fault("tokenize leaves out the tokenizer's settings", "stages.tokenize",
          '"tokenizer": wanted, "lock"', '"lock"', edit="eot"),
    Fault("tokenize leaves out the selection", "stages.tokenize",
          'settings["selection"] = build.config.selection.model_dump()', "pass", "selected", edit="selection"),
    Fault("scatter leaves out the seed", "ledger.once", *_of_settings("scatter", "k != 'seed'"), edit="seed"),
    Fault("scatter leaves out the number of cells", "ledger.once", *_of_settings("scatter", "k != 'cells'"),
          edit="cells"),
    Fault("scatter leaves out the length of contexts", "ledger.once", *_of_settings("scatter", "k != 'context_tokens'"),
          edit="context tokens"),
    Fault("scatter leaves out the packing", "stages.scatter",
          'settings["packing"] = build.config.packing.model_dump()', "pass", edit="packing"),
    Fault("scatter leaves out what empty documents become", "stages.scatter",
          'settings["empty_documents"] = build.config.framing.empty_documents', "pass",
          "apart", edit="empty documents"),
    Fault("export leaves out where in its cells a file begins", "ledger.once", *BEGINS, "source order", edit="append"),
    Fault("export leaves out what it writes", "ledger.once", *_of_settings("export", "k != 'outputs'"), "source order",
          edit="append"),
    Fault("export leaves out the vocabulary", "ledger.once", *_of_settings("export", "k != 'vocabulary'"), edit="eot"),
    Fault("export leaves out the framing", "stages.export",
          'settings["framing"] = build.config.framing.model_dump()', "pass", edit="framing"),
    Fault("export leaves out the loss", "stages.export",
          '        settings["loss"] = True', "        pass", edit="loss"),
    Fault("manifest leaves out exports and order", "stages.manifest",
          '"exports": config.exports.model_dump(mode="json"),\n        "order": config.shuffle.order,', "",
          edit="placeholders"),
    Fault("manifest leaves out the writebacks", "stages.manifest",
          'read = ["export", "writeback", ', 'read = ["export", ', edit="drop empty"),
    Fault("a step of another fingerprint counts as its own", "ledger.once",
          'return f"{work}/{stage}/{unit}-{fingerprint[:FOLDER_DIGITS]}"',
          'return str(next(iter(sorted((work / stage).glob(f"{unit}-*"))), '
          'work / f"{stage}/{unit}-{fingerprint[:FOLDER_DIGITS]}"))', edit="append"),
]
# fmt: on
