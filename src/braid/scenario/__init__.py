"""One simulation from a file: a network, its clients, what goes wrong, and what came of it.

- `reading`: a scenario file becomes `SimulationSettings`. `faults`: the plan of what goes wrong.
- `running`: `simulate` lets one network carry one workload. `workload`: what its clients do, and when.
- `tally`: counting without a trace.
"""

from __future__ import annotations

from braid.scenario.reading import Scenario, read_scenario, scenario_from_text
from braid.scenario.running import SimulationSettings, SimulationSummary, simulate

__all__ = [
    "Scenario",
    "SimulationSettings",
    "SimulationSummary",
    "read_scenario",
    "scenario_from_text",
    "simulate",
]
