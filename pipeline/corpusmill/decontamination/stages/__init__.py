"""The stages of this room: benchmarks indexes the items, decontaminate finds them in a shard and adds up the hits."""
