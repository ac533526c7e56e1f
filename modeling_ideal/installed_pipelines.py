"""What an installed package makes of `custom_pipelines` in a config.json: the task's name, and no code to fetch.

`transformers.pipelines.pipeline` uses this field of a configuration for two things:

    custom_tasks = config.custom_pipelines
    if task is None and trust_remote_code is not False: task = list(custom_tasks.keys())[0]
    if task in custom_tasks: ... raise ValueError("... set the option `trust_remote_code=True` ...")

The first lets users leave the task out. The second asks for remote code even if the task is registered already, as it
is where the package is installed: a model that was saved with its code would then not load without
`trust_remote_code=True`, and with it would run the code of its folder instead of the installed one. The field cannot
be dropped without losing the first, so the second must find nothing.
"""

from typing import Any

INSTALLED = not __name__.startswith("transformers_modules.")  # an installed package, not remote code


class RegisteredPipelines(dict):
    """Pipelines that a configuration names and that are registered: they have names, but `in` finds none to fetch."""

    def __contains__(self, task: object) -> bool:
        return False


def without_code(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration, for an installed package: the pipelines that it names need no remote code."""
    if not INSTALLED or "custom_pipelines" not in settings:
        return settings
    return {**settings, "custom_pipelines": RegisteredPipelines(settings["custom_pipelines"])}
