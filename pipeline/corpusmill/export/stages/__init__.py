"""The stage of this room writes a format's files; ``layout`` decides which records each file holds."""
