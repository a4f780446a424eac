"""JevBench-240 as rows for evaluation only: its cases with the gold answers its own generator reproduces (seed 1)."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

SEED = 1
PLANNED = 60  # cases per domain; the plan is greedy, so a longer one begins with a shorter one


def rows() -> list[dict[str, Any]]:
    from jevbench.datagen.domains import DOMAINS
    from jevbench.datagen.sample import plan_domain
    from jevbench.suites import load_suite

    plans = {p["id"]: p for domain in DOMAINS.values() for p in plan_domain(domain, PLANNED, SEED)}
    out = []
    for case in load_suite("jevbench-240").cases:
        plan = plans[case.id]
        for key, question in case.questions.items():
            if json.dumps(question) != json.dumps(plan["questions"].get(key)):
                raise SystemExit(f"{case.id}/{key}: the plan does not match the case")
            gold = plan["gold"][key]
            if gold != "unknown":
                out.append({"task": "jevbench240", "state": case.state, "question": question, "answer": gold})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    found = rows()
    with gzip.open(args.out, "wt", encoding="utf-8") as out:
        for row in found:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{len(found)} gold answers")


if __name__ == "__main__":
    main()
