"""Every metric of the node, declared once, by subject.

`/metrics`, `docs/reference/metrics.md`, the alert rules' test and the dashboard's all read `METRICS`. Labels are bounded: routes, upstreams
and rules come from the configuration, everything else from enums of ours, and what a client invents counts as `other`. Names carry their
unit. Counters of workers never fall while the node runs, even when one is replaced; those of the recorder and the ledger process begin
again with it, as Prometheus expects of a restart.
"""

from typing import Final

from tidegate.admin.metrics.admission import ADMISSION
from tidegate.admin.metrics.exposition import NodeCollector
from tidegate.admin.metrics.keeping import KEEPING
from tidegate.admin.metrics.processes import PROCESSES
from tidegate.admin.metrics.spec import Kind, MetricSpec
from tidegate.admin.metrics.traffic import TRAFFIC
from tidegate.admin.metrics.upstreams import UPSTREAMS

__all__ = ["METRICS", "Kind", "MetricSpec", "NodeCollector"]

METRICS: Final[tuple[MetricSpec, ...]] = (*TRAFFIC, *UPSTREAMS, *ADMISSION, *KEEPING, *PROCESSES)
