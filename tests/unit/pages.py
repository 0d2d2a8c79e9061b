"""A scrape's page, to be asked for single numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class Page:
    """What a collector shows now. Of one fleet: the label `app_id` is left out unless `app_id` is asked for."""

    def __init__(self, collector: Collector, app_id: str | None = None) -> None:
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for metric in collector.collect():
            for sample in metric.samples:
                if app_id is None or sample.labels["app_id"] == app_id:
                    labels = {label: value for label, value in sample.labels.items() if label != "app_id"}
                    self._samples.setdefault(sample.name, []).append((labels, sample.value))

    @property
    def names(self) -> frozenset[str]:
        """Of all samples."""
        return frozenset(self._samples)

    @property
    def labels(self) -> list[dict[str, str]]:
        """Of all samples."""
        return [labels for samples in self._samples.values() for labels, _ in samples]

    def of(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """All samples of a name that have these labels, and maybe others."""
        return [(found, value) for found, value in self._samples.get(name, []) if labels.items() <= found.items()]

    def value(self, name: str, **labels: str) -> float:
        """The one sample that has exactly these labels."""
        values = [value for found, value in self._samples.get(name, []) if found == labels]
        assert len(values) == 1, f"{name}{labels} is there {len(values)} times, of {self._samples.get(name)}"
        return values[0]

    def bucket(self, name: str, bound: float, **labels: str) -> float:
        """How many of a histogram were at most so long."""
        return self.value(f"{name}_bucket", le=str(bound), **labels)

    def total(self, name: str) -> float:
        """Over all labels."""
        return sum(value for _, value in self._samples.get(name, []))
