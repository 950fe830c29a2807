"""The stages of this room: rounds.py finds near-duplicates, decide.py decides, near_duplicates.py leaves them out."""
