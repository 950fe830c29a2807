"""Old names of commands and options: refused with an error that gives the new name."""

COMMANDS = {"index": "infini-gram"}

# Refused where the command has the new option and not the old one; an argument goes by its metavar.
OPTIONS = {
    "--append-eod": "--eod",
    "--eod-token": "--eot-token",
    "--eos": "--eod",
    "--eos-token": "--eot-token",
    "--eot": "--eot-token",
    "--export": "--format",
    "--input": "INPUT",
    "--json-key": "--text-field",
    "--keep": "--keep-versions",
    "--local-cell-dir": "--work-folder",
    "--maximum-tokens": "--tokens-per-shard",
    "--no-append-eod": "--no-eod",
    "--no-eos": "--no-eod",
    "--output-prefix": "--output",
    "--processes": "--workers",
    "--scratch": "--work-folder",
    "--seqlen": "--context-tokens",
    "--shard": "--file",
    "--wds-chunk-size": "--contexts-per-shard",
}
