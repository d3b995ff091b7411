"""Instruments of OpenTelemetry that read the loops' metrics when they are collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringloop import __version__
from ringloop.metrics._prometheus import HISTOGRAMS, SIMPLE
from ringloop.metrics._snapshot import snapshots

if TYPE_CHECKING:
    from collections.abc import Callable

QUANTILES = (0.5, 0.9, 0.99)


def opentelemetry(meter: Any = None) -> None:
    """Create observable instruments for all loops of this process, once per process.

    `meter` is an OpenTelemetry meter; without it, `opentelemetry.metrics.get_meter("ringloop")` of the
    application's provider. Counters and gauges are named `ringloop.turns`, `ringloop.ready_callbacks` …
    with the attribute `ringloop.loop`, the number of the loop. OpenTelemetry has no observable
    histograms: they are exported as the count, the sum in seconds, and gauges of the quantiles 0.5, 0.9
    and 0.99 since the loop was made (attribute `quantile`).

    Needs the package opentelemetry-api, and an SDK to send anything: `ImportError` without.
    """
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise ImportError(
            "ringloop.metrics.opentelemetry() needs opentelemetry-api, which is not installed: "
            "pip install opentelemetry-sdk",
            name="opentelemetry",
        ) from error
    made = metrics.get_meter("ringloop", __version__) if meter is None else meter
    observation = metrics.Observation
    for name, attribute, kind, text in SIMPLE:
        make = made.create_observable_counter if kind == "counter" else made.create_observable_gauge
        named = f"ringloop.{name.removesuffix('_total')}"
        unit = "s" if "seconds" in name else "By" if "bytes" in name else "1"
        make(named, callbacks=[_reader(observation, attribute)], unit=unit, description=text)
    for name, attribute, text in HISTOGRAMS:
        base = f"ringloop.{name.removesuffix('_seconds')}"
        for part, unit in (("count", "1"), ("sum", "s")):
            made.create_observable_counter(
                f"{base}.{part}",
                callbacks=[_part_reader(observation, attribute, part)],
                unit=unit,
                description=text,
            )
        made.create_observable_gauge(
            base, callbacks=[_quantile_reader(observation, attribute)], unit="s", description=text
        )


def _reader(observation: Any, attribute: str) -> Callable[[Any], list[Any]]:
    def read(_: Any) -> list[Any]:
        return [
            observation(getattr(loop, attribute), {"ringloop.loop": loop.loop})
            for loop in snapshots()
        ]

    return read


def _part_reader(observation: Any, attribute: str, part: str) -> Callable[[Any], list[Any]]:
    def read(_: Any) -> list[Any]:
        return [
            observation(getattr(getattr(loop, attribute), part), {"ringloop.loop": loop.loop})
            for loop in snapshots()
        ]

    return read


def _quantile_reader(observation: Any, attribute: str) -> Callable[[Any], list[Any]]:
    def read(_: Any) -> list[Any]:
        return [
            observation(
                getattr(loop, attribute).quantile(part),
                {"ringloop.loop": loop.loop, "quantile": part},
            )
            for loop in snapshots()
            for part in QUANTILES
        ]

    return read
