"""Makes a picture of the network, in plain values for a browser, from two looks at it.

Rates are what grew between the looks; where a broker has begun anew, or is seen for the first time, there is
none, and the picture says null rather than something made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.cli.overlay_views import rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.cli.overlay_crawl import Network, Report
    from braid.dashboard.watch import Look

__all__ = ["picture_of"]


def picture_of(before: Look | None, now: Look, number: int) -> dict[str, Any]:
    """What a browser draws."""
    elapsed_s = now.clock_s - before.clock_s if before is not None else 0.0
    earlier = before.network if before is not None else None
    rows = {}
    if earlier is not None and not now.problem:
        rows = {row["broker"]: row for row in rates(earlier, now.network, elapsed_s)["brokers"]}
    brokers = [
        _broker(report, earlier, rows.get(report.broker), elapsed_s)
        for report in now.network.reports
        if report.broker
    ]
    links = _links(now.network, earlier, elapsed_s)
    return {
        "number": number,
        "at": round(now.at_s, 3),
        "problem": now.problem,
        "complete": not now.problem and now.network.complete,
        "left_out": now.left_out,
        "brokers": brokers,
        "links": links,
        "soft": _soft_links(now.network, earlier, elapsed_s),
        "candidates": [
            {"from": report.broker, "to": str(other)}
            for report in now.network.reports
            for other in report.mesh.get("candidates", ())
        ],
        "totals": _totals(brokers),
    }


def _broker(
    report: Report, earlier: Network | None, row: Mapping[str, Any] | None, elapsed_s: float
) -> dict[str, Any]:
    overlay, statistics, mesh = report.overlay, report.statistics, report.mesh
    row = row or {}
    operation = overlay.get("operation")
    return {
        "id": report.broker,
        "address": report.address,
        "problem": report.problem,
        "gateway": report.gateway,
        "ready": bool(overlay.get("ready")),
        "incarnation": overlay.get("incarnation", ""),
        "clients": statistics.get("clients", 0),
        "behind": statistics.get("clients_behind", 0),
        "subscriptions": statistics.get("routing", {}).get("subscriptions", 0),
        "published": _grown(report, earlier, "published", elapsed_s),
        "received": row.get("received_per_s"),
        "forwarded": row.get("forwarded_per_s"),
        "delivered": row.get("delivered_per_s"),
        "dropped": _grown(report, earlier, "dropped", elapsed_s),
        "queue": row.get("queue_bytes", 0),
        "busy": _busy(report, earlier, elapsed_s),
        "strategy": mesh.get("strategy", ""),
        "delta": mesh.get("delta", 1),
        "withheld": sorted(overlay.get("withheld", {})),
        "unreached": report.unreached,
        "operation": operation
        and {name: operation[name] for name in ("id", "kind", "path", "stage", "paused")},
    }


def _same_start(report: Report, earlier: Network | None) -> Report | None:
    """The earlier report of the same start of the same broker."""
    found = earlier.named(report.broker) if earlier is not None else None
    if found is None or found.overlay.get("incarnation") != report.overlay.get("incarnation"):
        return None
    return found if found.statistics and report.statistics else None


def _grown(report: Report, earlier: Network | None, counter: str, elapsed_s: float) -> float | None:
    found = _same_start(report, earlier)
    if found is None or elapsed_s <= 0:
        return None
    grown = float(report.statistics["counters"][counter] - found.statistics["counters"][counter])
    return round(grown / elapsed_s, 1)


def _busy(report: Report, earlier: Network | None, elapsed_s: float) -> float | None:
    """The share of its time that a broker worked."""
    found = _same_start(report, earlier)
    if found is None or elapsed_s <= 0:
        return None
    now_us, before_us = report.statistics.get("busy_us"), found.statistics.get("busy_us")
    if now_us is None or before_us is None:
        return None
    return round(min(1.0, max(0.0, float(now_us - before_us) / 1e6 / elapsed_s)), 4)


def _sent(report: Report, earlier: Network | None, kind: str, to: str, elapsed_s: float) -> float | None:
    """Bytes a second from a broker to another one; a link that began anew counts from its beginning."""
    found = _same_start(report, earlier)
    if found is None or elapsed_s <= 0:
        return None
    now = report.statistics.get(kind, {}).get(to)
    if now is None:
        return None
    before = found.statistics.get(kind, {}).get(to, 0)
    return round(float(now - before if now >= before else now) / elapsed_s, 1)


def _links(network: Network, earlier: Network | None, elapsed_s: float) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for report in network.reports:
        for link in report.links:
            to = str(link["neighbour"])
            ends = (report.broker, to) if report.broker < to else (to, report.broker)
            known = found.setdefault(
                ends, {"a": ends[0], "b": ends[1], "up": True, "stage": "open", "rate": 0.0, "waiting": 0}
            )
            known["up"] = known["up"] and bool(link["up"])
            if link.get("stage", "open") != "open":
                known["stage"] = link["stage"]
            known["rate"] += _sent(report, earlier, "link_sent_bytes", to, elapsed_s) or 0.0
            known["waiting"] += link.get("waiting_bytes", 0)
    return [found[ends] for ends in sorted(found)]


def _soft_links(network: Network, earlier: Network | None, elapsed_s: float) -> list[dict[str, Any]]:
    return [
        {
            "from": report.broker,
            "to": str(other),
            "rate": _sent(report, earlier, "soft_link_sent_bytes", str(other), elapsed_s) or 0.0,
        }
        for report in network.reports
        for other in report.mesh.get("soft_links", ())
    ]


def _totals(brokers: list[dict[str, Any]]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for name in ("published", "delivered", "forwarded", "received", "dropped"):
        known = [broker[name] for broker in brokers if broker[name] is not None]
        sums[name] = round(sum(known), 1) if known else None
    delivered, forwarded = sums["delivered"], sums["forwarded"]
    sums["messages_per_delivery"] = (
        round(forwarded / delivered, 3) if delivered and forwarded is not None else None
    )
    sums["queue"] = sum(broker["queue"] for broker in brokers)
    sums["clients"] = sum(broker["clients"] for broker in brokers)
    busy = [broker["busy"] for broker in brokers if broker["busy"] is not None]
    sums["busiest"] = max(busy, default=None)
    return sums
