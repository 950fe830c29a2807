"""The stages of this room: manifest, upload and report.

The dataset is described, sent to every destination, and reported. The other files serve these three.
"""
