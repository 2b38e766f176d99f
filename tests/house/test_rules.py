"""Can each rule of the house fail? Each is tried on a made-up module that breaks it and one that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.house import rules
from tests.house.rules import Import, Module, modules

if TYPE_CHECKING:
    from pathlib import Path


def complaints(rule: str, name: str, source: str, *, is_package: bool = False) -> list[str]:
    return list(getattr(rules, rule)(Module(name, source, is_package)))


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import os.path, json
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from braid.language import Filter
try:
    import fast
except ImportError:
    fast = None
class Table:
    import inner
    def method(self):
        from . import sibling
        from ..matching import index
"""
    found = Module("braid.routing.table", source).imports
    assert found == (
        Import("os.path", 2, True, False),
        Import("json", 2, True, False),
        Import("typing.TYPE_CHECKING", 3, True, False),
        Import("braid.language.Filter", 5, True, True),
        Import("fast", 7, True, False),
        Import("inner", 11, True, False),
        Import("braid.routing.sibling", 13, False, False),
        Import("braid.matching.index", 14, False, False),
    )


def test_relative_imports_of_a_package_start_at_itself() -> None:
    [found] = Module("braid.routing", "from .table import Row", is_package=True).imports
    assert found.target == "braid.routing.table.Row"


def test_modules_are_named_after_their_files(tmp_path: Path) -> None:
    (tmp_path / "braid" / "language").mkdir(parents=True)
    for path in ("__init__.py", "errors.py", "language/__init__.py", "language/parser.py"):
        (tmp_path / "braid" / path).write_text("")
    found = {module.name: module.room for module in modules(tmp_path)}
    assert found == {
        "braid": "",
        "braid.errors": "errors",
        "braid.language": "language",
        "braid.language.parser": "language",
    }


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("braid.language.parser", "from braid.matching import FilterIndex"),
        ("braid.language.parser", "import braid.matching.index"),
        ("braid.language.parser", "from braid import matching"),
        ("braid.language.parser", "from ..matching import FilterIndex"),
        ("braid.language.parser", "def f():\n    from braid.cli import main"),
        ("braid.language.parser", "if TYPE_CHECKING:\n    from braid.matching import FilterIndex"),
        ("braid.language.parser", "import braid"),
        ("braid.embedded.core", "from braid import Filter"),
        ("braid.errors", "from braid.language import Filter"),
        ("braid.runtime.server", "from braid.broker import Core"),
        ("braid.sim.world", "import braid.routing.overlay_map"),
    ],
)
def test_an_import_in_the_wrong_direction_is_seen(name: str, source: str) -> None:
    assert len(complaints("rooms_import_only_rooms_before_them", name, source)) == 1


def test_the_package_does_not_know_its_benchmarks() -> None:
    source = "def run():\n    from braid_bench.matching import bench_matching"
    assert len(complaints("nobody_knows_the_benchmarks", "braid.cli.app", source)) == 1
    assert complaints("nobody_knows_the_benchmarks", "braid_bench.cli", source) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("braid.matching.index", "from braid.language import Filter\nfrom braid.errors import BraidError"),
        ("braid.matching.index", "from braid.matching import naive\nfrom . import columns"),
        ("braid.runtime.server", "from braid.protocol import codec\nfrom braid.trace import writer"),
        ("braid.broker.core", "from braid.routing import overlay_map"),
        ("braid.cli.app", "import braid\nfrom braid import __version__\nfrom braid.scenario import simulate"),
        ("braid", "from braid.cli import main"),
        ("braid.__main__", "from braid.cli import main"),
    ],
)
def test_an_import_in_the_right_direction_is_not(name: str, source: str) -> None:
    assert complaints("rooms_import_only_rooms_before_them", name, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import time",
        "from threading import Lock",
        "import socket",
        "import ssl",
        "import subprocess",
        "import concurrent.futures",
        "def f():\n    import multiprocessing",
        "from random import random",
        "import random\nrandom.shuffle([])",
        "import random\nrandom.Random()",
        "import numpy as np\nnp.random.rand(3)",
        "import numpy as np\nnp.random.default_rng()",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "from datetime import date\ndate.today()",
        "import os\nos.urandom(8)",
    ],
)
def test_impurity_is_seen_in_a_pure_room_and_allowed_elsewhere(source: str) -> None:
    assert len(complaints("pure_rooms_stay_pure", "braid.matching.index", source)) == 1
    assert complaints("pure_rooms_stay_pure", "braid.embedded.bus", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import random\nrandom.Random(7).shuffle([])",
        "from random import Random",
        "import numpy as np\nnp.random.default_rng(7)",
        "from datetime import datetime\ndatetime.fromisoformat('2020-01-01')",
        "if TYPE_CHECKING:\n    import asyncio",
        "import timeit_like_name",
        "self.now()",
    ],
)
def test_seeded_randomness_and_plain_values_are_pure(source: str) -> None:
    assert complaints("pure_rooms_stay_pure", "braid.matching.index", source) == []


def test_spark_at_module_level_is_seen_outside_the_pipeline() -> None:
    rule = "spark_is_imported_late"
    early = "from pyspark.sql import Column"
    late = f"if TYPE_CHECKING:\n    {early}\ndef f():\n    {early}"
    assert len(complaints(rule, "braid.language.spark_sql", early)) == 1
    assert complaints(rule, "braid.language.spark_sql", late) == []
    assert complaints(rule, "braid.pipeline.metrics", early) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def match(): ...", "no __all__"),
        ("LIMIT = 3", "no __all__"),
        ("__all__ = names()\nclass Index: ...", "no __all__"),
        ("__all__ = ['a', 'a']\na = 1", "listed twice"),
        ("__all__ = ['gone']", "not there"),
    ],
)
def test_undeclared_public_names_are_seen(source: str, problem: str) -> None:
    [complaint] = complaints("public_names_are_declared", "braid.matching.index", source)
    assert problem in complaint


@pytest.mark.parametrize(
    "source",
    [
        '"""Only words."""',
        "def _private(): ...",
        "__all__ = ['a', 'b', 'C', 'd', 'e']\nimport a\nfrom x import y as b\nclass C: ...\nd: int = 1\n"
        "if True:\n    def e(): ...",
        "__all__: list[str] = ['made_on_demand']\ndef __getattr__(name): ...",
    ],
)
def test_declared_public_names_are_fine(source: str) -> None:
    assert complaints("public_names_are_declared", "braid.matching.index", source) == []


def test_an_imported_name_that_is_not_declared_is_seen() -> None:
    text = Module("braid.language.text", "__all__ = ['canonical']\ndef canonical(): ...\ndef parts(): ...")
    package = Module("braid.language", "", is_package=True)
    good = Module(
        "braid.matching.naive", "from braid.language import text\nfrom braid.language.text import canonical"
    )
    bad = Module("braid.matching.index", "def f():\n    from braid.language.text import parts")
    assert rules.imported_names_are_declared([package, text, good]) == []
    [complaint] = rules.imported_names_are_declared([package, text, good, bad])
    assert complaint == "braid.matching.index:2: braid.language.text does not list parts in its __all__"


def test_the_entry_point_declares_nothing() -> None:
    assert complaints("public_names_are_declared", "braid.__main__", "def run(): ...") == []


def test_long_modules_unknown_rooms_and_missing_docstrings_are_seen() -> None:
    assert complaints("modules_stay_short", "braid.errors", "\n" * 600) == []
    assert len(complaints("modules_stay_short", "braid.errors", "\n" * 601)) == 1
    assert complaints("rooms_are_known", "braid.language.parser", "") == []
    assert len(complaints("rooms_are_known", "braid.utilities", "")) == 1
    assert complaints("modules_open_with_a_docstring", "braid.errors", '"""Whose fault?"""\nx = 1') == []
    assert len(complaints("modules_open_with_a_docstring", "braid.errors", "x = 1")) == 1
