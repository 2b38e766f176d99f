"""What do all tests share? The Hypothesis profiles, and one Spark session for everybody."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from braid.compiled import compiled_modules
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# No deadlines anywhere: a busy machine is not a bug.
settings.register_profile("dev", deadline=None, print_blob=True)
# The same examples in every run, so that a red build means a change and not bad luck.
settings.register_profile(
    "ci", deadline=None, print_blob=True, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# For hunting: HYPOTHESIS_PROFILE=thorough.
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if ON_CI else "dev"))


@pytest.fixture(scope="session", autouse=True)
def _key_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Anonymous durable subscriptions are opened by a key of the user, whose own is left alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BRAID_SECRET_FILE", str(tmp_path_factory.mktemp("key") / "durable-key"))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all users of the Spark session, and keep them on one xdist worker: one Java process is enough.

    Tests that replace methods of modules that may be compiled need the source.
    """
    compiled = bool(compiled_modules())
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
        if compiled and item.get_closest_marker("interpreted") is not None:
            item.add_marker(pytest.mark.skip(reason="compiled modules do not see that a method is replaced"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all Spark tests share. Tests that change its settings put them back."""
    from braid.pipeline.session import start_session

    try:
        session = start_session("braid tests", profile="testing")
    except ConfigurationError as problem:
        # A missing Spark or Java is no reason to see red on a laptop, but CI must not pass by skipping.
        if ON_CI or _spark_is_possible():
            raise
        pytest.skip(str(problem))
    yield session
    session.stop()


def _spark_is_possible() -> bool:
    """True when Spark and Java are both there, so that a session that does not start is a failure."""
    from importlib.util import find_spec

    from braid.pipeline.java import find_java

    try:
        find_java()
    except ConfigurationError:
        return False
    return find_spec("pyspark") is not None
