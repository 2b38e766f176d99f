"""Can I see what Braid is for, in two minutes, and believe what I see?

`braid demo` starts a network of real brokers on this machine, publishes stock quotes, and tells a story in
acts while the dashboard shows it. At the end Spark reads what brokers and clients wrote down, and judges.

`settings` says what is run, `market` who quotes and who wants what, `processes` has the brokers, `clients`
those who publish and subscribe, `story` the acts, `show` the terminal, `figures` the judgement, `report`
the page that stays.
"""

from __future__ import annotations

__all__: list[str] = []
