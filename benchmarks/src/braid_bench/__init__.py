"""How fast is it, compared with what else one could do?

Benchmarks are code with stored results, in a distribution of their own: whoever runs brokers does not carry
rivals and their installers along. `braid bench matching` runs `matching.bench_matching`, `braid bench
broker` runs `brokers.bench_brokers`.
"""

from __future__ import annotations

__all__: list[str] = []
