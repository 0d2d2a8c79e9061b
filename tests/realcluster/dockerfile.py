"""The Dockerfiles of `config/`, read as Docker does as far as they go: no line is continued."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["CONFIG", "Dockerfile"]

CONFIG: Final = Path(__file__).parents[2] / "config"


@dataclass(frozen=True)
class Dockerfile:
    instructions: tuple[tuple[str, str], ...]
    """Those of the last stage come after the last FROM."""

    @classmethod
    def of(cls, name: str) -> Dockerfile:
        """Read `config/NAME.Dockerfile`."""
        lines = (CONFIG / f"{name}.Dockerfile").read_text(encoding="utf-8").splitlines()
        assert not any(line.endswith("\\") for line in lines)
        found = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
        return cls(tuple((word, rest) for word, rest in found))

    def last_stage(self) -> dict[str, str]:
        begin = max(index for index, (word, _) in enumerate(self.instructions) if word == "FROM")
        return dict(self.instructions[begin:])

    def entrypoint(self) -> list[str]:
        command: list[str] = json.loads(self.last_stage()["ENTRYPOINT"])
        return command

    def program(self) -> str:
        """The file of yours that it copies."""
        return self.last_stage()["COPY"].split()[0]

    def config(self, base: dict[str, str]) -> dict[str, Any]:
        """How its containers start, as an OCI image says it. `base` are the variables of the image it begins from."""
        stage = self.last_stage()
        variables = base | dict(each.split("=", 1) for each in stage["ENV"].split())
        return {
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "WorkingDir": stage["WORKDIR"],
            "User": stage["USER"],
            "Entrypoint": self.entrypoint(),
        }
