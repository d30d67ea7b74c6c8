"""Lists the test classes of a Python project, one JSON object a line: the rows of `--map`.

    discover.py PROJECT

Classes are found as `python3 -m unittest` finds them, so inherited tests count. Doctests belong to no class and are
left out.
"""

import json
import sys
import unittest
from collections import Counter


def tests_in(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_in(item)
        else:
            yield item


def main(project):
    sys.dont_write_bytecode = True
    sys.path.insert(0, project)
    loader = unittest.TestLoader()
    suite = loader.discover(project, top_level_dir=project)
    if loader.errors:
        sys.exit("\n".join(loader.errors))
    classes = Counter()
    for test in tests_in(suite):
        kind = type(test)
        if kind.__module__.startswith("tests."):
            classes[f"{kind.__module__}.{kind.__qualname__}"] += 1
    for name, count in sorted(classes.items()):
        print(json.dumps({"class": name, "count": count}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
