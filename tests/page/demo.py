"""Serves the page of a made-up fleet: `python -m tests.page.demo --size 500 --port 8080`.

`--scene` is churn, blocked, stuck, outage or standby; `--hostile` puts markup and escape sequences into all texts;
`--token TEXT` allows actions; `--past MINUTES` is how long the fleet has lived, and
`--life SECONDS` how long an executor does.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from actors.page.page import serve_page
from actors.runtime import ActorSystem, SystemClock
from tests.page.model import Model, ModelBackend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from actors.messages import FleetChanged, ToDriver
    from actors.page.page import Page

from contextlib import contextmanager


class DemoClock(SystemClock):
    """The machine's clock, set back while the past is made up."""

    past: float | None = None

    def now(self) -> datetime:
        return super().now() if self.past is None else datetime.fromtimestamp(self.past, UTC)


@contextmanager
def demo(
    size: int,
    *,
    port: int = 0,
    scene: str = "churn",
    past: float = 30.0,
    life: float | None = None,
    hostile: bool = False,
    token: str | None = None,
) -> Iterator[tuple[Page, Model]]:
    """Serve a made-up fleet that has lived for `past` minutes. `model.step` lets it live on."""
    clock, system = DemoClock(), ActorSystem()
    try:
        with serve_page(port, "etl", token=token, clock=clock) as page:

            def tell(message: ToDriver | FleetChanged, at: float) -> None:
                clock.past = at
                page.feed(message)
                clock.past = None

            model = Model(size, tell, scene="churn" if scene == "outage" else scene, hostile=hostile)
            now = clock.now().timestamp()
            model.life = life or max(past * 60, 600.0)
            at = now - past * 60
            model.begin(at)
            while at < now:
                model.step(at)
                at += 1.0
            model.scene = scene
            model.now = now
            for one in list(model.alive.values())[:50]:
                page.annotate(one.id, stage=one.id % 7, tasks=one.id * 3 % 41, host=f"worker-{one.id}")
            page.backend = system.spawn(lambda context: ModelBackend(context, model=model), name="backend", owner=None)
            yield page, model
    finally:
        system.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--scene", default="churn")
    parser.add_argument("--past", type=float, default=30.0)
    parser.add_argument("--life", type=float)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--token")
    options = vars(parser.parse_args())
    made: AbstractContextManager[tuple[Page, Model]] = demo(options.pop("size"), **options)
    with made as (page, model):
        print(page.url, flush=True)
        while True:
            time.sleep(0.1)
            model.step(datetime.now(UTC).timestamp())


if __name__ == "__main__":
    main()
