"""IDEAL: few-shot anomaly detection from normal and abnormal reference photographs."""

from .version import __version__

__all__ = ["__version__"]
