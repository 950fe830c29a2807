"""The stages of this room: benchmarks indexes the items, decontaminate finds them in a shard.

``contamination`` adds up the hits of all shards.
"""
