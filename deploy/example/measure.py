"""The work of one task: runs one test class in the checkout it stands in and writes down what came of it.

    measure.py CLASS RESULT

Tests that fail are a result like any other and no reason to fail: what the result is worth is decided by the
verification of the task, which runs the class again where this program cannot reach.
"""

import json
import os
import sys
import time
import unittest


def main(name, result):
    sys.path.insert(0, os.getcwd())
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    begun = time.monotonic()
    outcome = unittest.TextTestRunner(verbosity=2).run(suite)
    found = {
        "class": name,
        "tests": outcome.testsRun,
        # A subtest is counted as its test.
        "failures": sorted({test.id().split(" ")[0] for test, _ in outcome.failures + outcome.errors}),
        "seconds": round(time.monotonic() - begun, 3),
    }
    # Whole or not there: whoever waits for the file may read it at any time.
    with open(f"{result}.new", "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    os.replace(f"{result}.new", result)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
