"""Several modules as commands in one process, since importing takes longer than what the tests do with them.

python -m tests.training.launched '[[MODULE, [WORDS...]], ...]'
"""

import json
import runpy
import sys

if __name__ == "__main__":
    for module, words in json.loads(sys.argv[1]):
        sys.argv = [module, *words]
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
