"""A store's metrics in a registry of prometheus-client (the extra `lastgood[prometheus]`).

    from lastgood.observe import prometheus

    prometheus.register(store)                  # beside everything else that the program exposes
    prometheus.register(other, name="other")    # a second store: its samples carry the label store="other"

Without prometheus-client, `store.metrics().to_prometheus()` is the same as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary, ref

from prometheus_client.core import REGISTRY, CollectorRegistry, Metric
from prometheus_client.registry import Collector

from lastgood.errors import InvalidError
from lastgood.observe.meter import Measured
from lastgood.observe.metrics import METRICS, expose

_stores_of: WeakKeyDictionary[CollectorRegistry, Stores] = WeakKeyDictionary()


def register(store: Measured, *, name: str = "", registry: CollectorRegistry = REGISTRY) -> Callable[[], None]:
    """Have `store` read whenever `registry` is. Returns how to end that. A store that is gone is not read any more.

    InvalidError when another one has that name there.
    """
    stores = _stores_of.get(registry)
    if stores is None:
        stores = _stores_of[registry] = Stores()
        registry.register(stores)
    return stores.add(name, store)


class Stores(Collector):
    """A collector of all stores of one registry, which must have each metric from one collector only."""

    def __init__(self) -> None:
        self._stores: dict[str, ref[Measured]] = {}

    def add(self, name: str, store: Measured) -> Callable[[], None]:
        held = self._stores.get(name)
        if held is not None and held() not in (None, store):
            raise InvalidError(f"another store is registered as {name!r}", hint="give each a name of its own")
        mine = self._stores[name] = ref(store)

        def remove() -> None:
            if self._stores.get(name) == mine:
                del self._stores[name]

        return remove

    def describe(self) -> Iterator[Metric]:
        return (Metric(_base(metric.exposed), metric.help, metric.kind) for metric in METRICS.values())

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for name, held in list(self._stores.items()):
            if (store := held()) is not None:
                labels = {"store": name} if name else {}
                for family in store.metrics().families:
                    base = _base(family.exposed)
                    metric = found.setdefault(base, Metric(base, family.help, family.kind))
                    for exposed, own, value in expose(family):
                        metric.add_sample(exposed, {**labels, **own}, value)
        return iter(found.values())


def _base(exposed: str) -> str:
    return exposed.removesuffix("_total")
