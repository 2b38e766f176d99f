"""What can be said? Values, publications and filters: the language of the network."""

from braid.language.explain import Explanation
from braid.language.filters import Filter
from braid.language.patterns import filter_from_pattern
from braid.language.publication import Publication, checked_attributes, flatten
from braid.language.spark_sql import to_spark, to_spark_sql
from braid.language.values import Range, Scalar, Value

__all__ = [
    "Explanation",
    "Filter",
    "Publication",
    "Range",
    "Scalar",
    "Value",
    "checked_attributes",
    "filter_from_pattern",
    "flatten",
    "to_spark",
    "to_spark_sql",
]
