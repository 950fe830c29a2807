"""The stages of this room: budget decides who is shown how often, scatter and gather shuffle."""
