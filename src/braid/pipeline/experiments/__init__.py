"""What do the papers claim, and what happens here?

One module per question: `simulation` runs one network, `sweep` runs many of them as Spark tasks, `registry`
knows every experiment, and `reproduce` goes all the way from a name to rows, figures and a report.
"""

from __future__ import annotations

__all__: list[str] = []
