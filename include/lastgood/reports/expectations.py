"""Our own expectations of Great Expectations: what the byte equation says, row by row.

Importing this takes seconds, as Great Expectations does: only what runs checks imports it. Columns
are of Python's whole numbers: a float would round a store of more than 9 PB.
"""

from __future__ import annotations

from typing import Any

from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import MulticolumnMapExpectation
from great_expectations.expectations.metrics.map_metric_provider.multicolumn_condition_partial import (  # noqa: E501 - the name of its module
    multicolumn_condition_partial,
)
from great_expectations.expectations.metrics.map_metric_provider.multicolumn_map_metric_provider import (  # noqa: E501 - the name of its module
    MulticolumnMapMetricProvider,
)

_DOMAIN = ("batch_id", "table", "column_list", "row_condition", "condition_parser", "ignore_row_if")


class ByteEquationCloses(MulticolumnMapMetricProvider):
    """Whether all columns but the last add up to the last, to the byte."""

    condition_metric_name = "byte_equation.closes"
    condition_domain_keys = _DOMAIN

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: Any, **_: Any) -> Any:  # noqa: N805 - it becomes a class method
        total = column_list.iloc[:, -1]
        return total.notna() & (column_list.iloc[:, :-1].sum(axis=1) == total)


class ByteEquationNests(MulticolumnMapMetricProvider):
    """Whether the first column, a part, is not more than the second, its whole."""

    condition_metric_name = "byte_equation.nests"
    condition_domain_keys = _DOMAIN

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: Any, **_: Any) -> Any:  # noqa: N805 - it becomes a class method
        return column_list.iloc[:, 0] <= column_list.iloc[:, 1]


class ExpectByteEquationToClose(MulticolumnMapExpectation):
    """Expect the lines of each row to add up to what the backend accounts for: the last column. A
    total that the backend does not tell closes nothing."""

    map_metric = "byte_equation.closes"
    args_keys = ("column_list",)


class ExpectPartWithinWhole(MulticolumnMapExpectation):
    """Expect no line of a project to have more bytes than that line of its whole store."""

    map_metric = "byte_equation.nests"
    args_keys = ("column_list",)
