"""What IDEAL is compared with: training-free baselines and ablations, one file for each method or small family.

A file in this folder adds a method with the decorator `method`; nothing else needs to know of it.
"""

import importlib
import pkgutil

from .registry import IN_POSES, METHODS, Method, method

__all__ = ["IN_POSES", "METHODS", "Method", "method"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# By name: the order of rows and colours does not depend on which file a method is in.
for _name in sorted(METHODS):
    METHODS[_name] = METHODS.pop(_name)
