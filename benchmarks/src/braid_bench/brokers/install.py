"""Where do the rival brokers come from, and how do they not become services of this machine?

They are Debian's own packages, installed as they are. A package's maintainer script starts its service and
enables it for the next boot; a benchmark wants neither. So a `policy-rc.d` (Debian's own switch for this)
forbids starting while the packages are configured, and afterwards the services are disabled. A broker that
was on the machine before is somebody's service and is left as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["INSTALL_HINT", "PACKAGES", "install_rivals", "installed_version"]

PACKAGES: dict[str, tuple[str, ...]] = {
    "nats-server": ("nats-server.service",),
    "mosquitto": ("mosquitto.service",),
    "rabbitmq-server": ("rabbitmq-server.service", "epmd.service", "epmd.socket"),
    "activemq": ("activemq.service",),
}
"""The Debian packages, each with the services it brings."""

INSTALL_HINT = f"as root on Debian: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
"""What a person can do who has no rivals to measure."""

_POLICY = Path("/usr/sbin/policy-rc.d")
_FORBIDDEN = "#!/bin/sh\nexit 101\n"
# Some hundred packages over a slow line; beyond this something is wrong.
_SECONDS_MAX = 1_800


def install_rivals() -> list[str]:
    """Install the rival brokers that are missing; returns the names of the packages that are new."""
    missing = [package for package in PACKAGES if installed_version(package) is None]
    if not missing:
        return []
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ConfigurationError(
            f"cannot install {', '.join(missing)} here: that needs apt-get and root. Do it {INSTALL_HINT}"
        )
    with _no_service_starts():
        _run("apt-get", "update")
        _run("apt-get", "install", "-y", "--no-install-recommends", *missing)
    for package in missing:
        _disable(PACKAGES[package])
    return missing


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    if shutil.which("dpkg-query") is None:
        return None
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", package]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    status, _, version = answer.stdout.strip().partition(" ")
    return version if status == "installed" else None


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """While this holds, packages may not start their services; a policy that is there already is kept."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text(_FORBIDDEN)
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _disable(services: tuple[str, ...]) -> None:
    """Not at the next boot either, and not now where an older policy allowed it."""
    if shutil.which("systemctl") is None:
        return
    now = ["--now"] if Path("/run/systemd/system").is_dir() else []
    for service in services:
        # A service the package no longer brings is no fault: the answer is not looked at.
        subprocess.run(["systemctl", "disable", *now, service], capture_output=True, check=False)


def _run(*command: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=_SECONDS_MAX
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        raise ConfigurationError(f"{' '.join(command)} failed: {' '.join(last)}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"{' '.join(command)} took more than {_SECONDS_MAX} seconds") from error
