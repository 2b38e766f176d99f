"""Does a channel alone know whether credit is withheld? Others give it reasons by name, and ask."""

from __future__ import annotations

import ast

from tests.house.test_house import MODULES

# Who keeps the reasons, and who has some.
KEEPER = "braid.protocol.incoming"
REASONS = {
    "braid.broker.bottleneck": "a party, the store, the disk, memory or what is out of sight is behind",
    "braid.broker.draining": "the broker stops",
    "braid.broker.publications": "subscriptions may still be on their way here",
    "braid.client.session": "the queue of a reader is full",
}


def test_whether_credit_is_withheld_is_read_and_never_written() -> None:
    complaints = []
    for module in (each for each in MODULES if each.room in ("broker", "protocol")):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in ("withheld", "_holds"):
                written = isinstance(node.ctx, ast.Store)
                if (node.attr == "withheld" and written) or (node.attr == "_holds" and module.name != KEEPER):
                    complaints.append(f"{module.name}:{node.lineno}: {ast.unparse(node)}")
    assert complaints == [], "\n".join(complaints)


def test_reasons_come_from_those_who_have_one() -> None:
    callers = {
        module.name
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("hold_credit", "release_credit")
    }
    assert callers == set(REASONS)
