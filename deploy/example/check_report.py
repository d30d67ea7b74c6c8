"""Compares the report of a run with what plain `python3 -m unittest` says of the same commit.

    check_report.py REPORT.json UNITTEST.log

UNITTEST.log is what one run of the whole suite printed. The tasks that the report calls failed must be exactly the
classes with a failure in that log; every other task must be accepted. Exit 0 when that is so, else 1 and the
differences.
"""

import json
import re
import sys

# Python before 3.11 leaves the method out of the parentheses. Doctests are of no test class, so of no task.
FAILED = re.compile(r"^(?:FAIL|ERROR): (\w+) \((tests\.[\w.]+)\)")
RAN = re.compile(r"^Ran (\d+) tests? in ")


def classes_that_fail(log):
    failed, ran = set(), 0
    for line in log:
        if match := FAILED.match(line):
            method, place = match.groups()
            failed.add(place.removesuffix(f".{method}"))
        elif match := RAN.match(line):
            ran = int(match.group(1))
    if not ran:
        sys.exit("the log has no 'Ran N tests' line: unittest did not come to its end")
    return failed


def main(report_path, log_path):
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    with open(log_path, encoding="utf-8") as file:
        expected = classes_that_fail(file)
    outcomes = {task["name"]: task for task in report["tasks"]}
    found = {name for name, task in outcomes.items() if task["outcome"] == "failed"}
    problems = [f"- {name}: unittest says it fails, the report does not" for name in sorted(expected - found)]
    problems += [f"+ {name}: the report says it failed, unittest does not" for name in sorted(found - expected)]
    for name, task in sorted(outcomes.items()):
        if name in found & expected:
            if task["class"] != "verify":
                problems.append(f"! {name}: failed by {task['class']}, not by its verification: {task['reason']}")
            if not (task["result"] or {}).get("failures"):
                problems.append(f"! {name}: its result names no failing test: {task['result']}")
        elif name not in found and task["outcome"] != "accepted":
            problems.append(f"! {name}: is {task['outcome']}: {task['reason']}")
    if problems:
        print(f"the report differs from unittest in {len(problems)} places:")
        print("\n".join(problems))
        sys.exit(1)
    print(f"unittest and the report name the same {len(found)} of {len(outcomes)} classes as broken:")
    for name in sorted(found):
        for test in outcomes[name]["result"]["failures"]:
            print(f"  {test}")
    if not found:
        print("  (none)")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
