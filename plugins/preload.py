"""Preload libraries and Corpusmill before processes are forked that need them (an Airflow plugin)."""

from corpusmill_airflow.preload import PreloadPlugin

__all__ = ["PreloadPlugin"]
