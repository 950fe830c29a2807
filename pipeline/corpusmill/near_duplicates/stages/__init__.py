"""The stages of this room: rounds.py finds and decides the near-duplicates, near_duplicates.py leaves them out."""
