"""The stages of this room: download, index and quarantine.

Files arrive and are checked; their lines become text shards; malformed lines are quarantined.
"""
