"""Which extra of the package brings what a command misses?"""

from __future__ import annotations

__all__ = ["EXTRAS", "extra_for"]

# Packages that commands import when they run, by extra; the smaller extras come first.
EXTRAS = {
    "dashboard": {"starlette", "uvicorn"},
    "trace": {"pyarrow"},
    "sim": {"networkx", "pyarrow"},
    "network": {"prometheus_client", "uvloop"},
    "zookeeper": {"kazoo"},
    "spark": {"pandas", "pyarrow", "pyspark"},
    "experiments": {"matplotlib", "networkx", "pandas", "pyarrow", "pyspark"},
    "connect": {"google", "grpc", "grpc_status", "pandas", "pyarrow", "pyspark", "zstandard"},
}
# What whoever uses a command will need sooner or later, so that nobody has to install twice.
EXTRA_OF_COMMAND = {"pipeline": "spark", "reproduce": "experiments", "simulate": "sim"}


def extra_for(package: str, command: str) -> str | None:
    """The extra that brings a package for a command, or None for a package of no extra."""
    usual = EXTRA_OF_COMMAND.get(command, "")
    if package in EXTRAS.get(usual, ()):
        return usual
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)
