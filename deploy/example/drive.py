#!/usr/bin/env python3
"""Gives the tasks of standard input, one JSON object a line, to phalanx; says what failed, with its verification's log."""
import json, subprocess, sys

def phalanx(*words, **options):
    return subprocess.run(["phalanx", *words], stdout=subprocess.PIPE, text=True, **options)

ran = phalanx("run", "-", "-o", "json", input=sys.stdin.read())
if ran.returncode not in (0, 7, 8):  # all accepted, some, none; anything else was told on standard error
    sys.exit(ran.returncode)
run = json.loads(ran.stdout)["items"][0]
print(f"{run['accepted']} of {run['total']} tasks accepted")
for task in json.loads(phalanx("tasks", run["id"], "-o", "json", check=True).stdout)["items"]:
    print(f"{task['name']}: {task['state']}: {task['branch'] or task['reason']}")
    checked = [attempt["verification"] for attempt in task["attempts"] if attempt["verification"]]
    if task["state"] == "FAILED" and checked:
        print(phalanx("logs", checked[-1]["agent"], "--tail", "20").stdout, end="")
sys.exit(ran.returncode)
