"""Metrics of the loops of this process: snapshots, Prometheus, OpenTelemetry, `top`, a page with plots.

`loop.metrics()` is a snapshot of one loop, `snapshots()` of all. `prometheus()` is their text for
Prometheus; `opentelemetry()` makes instruments that read them. `serve()` offers them to
`python -m ringloop top`, and `serve_http()` to a browser and to Prometheus. Nothing is installed, and no
thread runs before `serve` or `serve_http` is called. docs/metrics.md describes each number.
"""

from __future__ import annotations

from ringloop._slow import SlowCallback
from ringloop.metrics._opentelemetry import opentelemetry
from ringloop.metrics._prometheus import prometheus
from ringloop.metrics._serving import Serving, serve, serve_http
from ringloop.metrics._snapshot import Histogram, LoopMetrics, snapshots

__all__ = [
    "Histogram",
    "LoopMetrics",
    "Serving",
    "SlowCallback",
    "opentelemetry",
    "prometheus",
    "serve",
    "serve_http",
    "snapshots",
]
