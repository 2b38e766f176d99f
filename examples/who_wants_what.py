"""Which of many rules does each document meet? Run it with `python examples/who_wants_what.py`.

Rules may be SQL conditions or event patterns in JSON; nested documents are flattened to dotted names.
"""

from __future__ import annotations

import braid

RULES = {
    "large orders": braid.Filter("order.total >= 1000"),
    "to the north": braid.filter_from_pattern({"order": {"country": ["NO", "SE", {"prefix": "FI"}]}}),
    "half price": braid.Filter("order.paid <= order.total / 2 AND order.total > 0"),
}

DOCUMENTS = [
    {"order": {"total": 1200, "paid": 1200, "country": "DE"}},
    {"order": {"total": 80, "paid": 40, "country": "SE"}},
    {"order": {"total": 2000, "paid": 500, "country": "FI-01"}},
]


def main() -> None:
    index = braid.FilterIndex(RULES.items())
    for document, rules in zip(
        DOCUMENTS, index.match_batch([braid.flatten(each) for each in DOCUMENTS]), strict=True
    ):
        print(document["order"], "->", ", ".join(sorted(rules)) or "nobody")


if __name__ == "__main__":
    main()
