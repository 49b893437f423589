"""gputally's own names: base units, one meaning per family, `sum()` always right."""

from collections.abc import Sequence

from gputally.dialects.native.exporter import BARE_METRICS, EXPORTER_METRICS
from gputally.dialects.native.gpu import GPU_METRICS
from gputally.dialects.native.work import PROCESS_METRICS, WORKLOAD_METRICS, info
from gputally.metrics import Metric


def metrics(labels: Sequence[str] = (), annotations: Sequence[str] = ()) -> tuple[Metric, ...]:
    """The whole table, with these pod labels and annotations on the info row."""
    rows = EXPORTER_METRICS + GPU_METRICS + WORKLOAD_METRICS
    return (*rows, info(labels, annotations), *PROCESS_METRICS)


METRICS = metrics()

__all__ = ["BARE_METRICS", "METRICS", "metrics"]
