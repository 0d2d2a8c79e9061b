"""The table of lives as Markdown: `python -m tests.node.table` writes it into README.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.node.lives import LIVES

if TYPE_CHECKING:
    from tests.node.life import Life, Told

__all__ = ["README", "shown", "with_table"]

README: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- the table: python -m tests.node.table -->\n"
END: Final = "<!-- the end of the table -->\n"
HEAD: Final = """\
| life | what happens | kind | exit code | the application's | the message has | differs |
| --- | --- | --- | --- | --- | --- | --- |
"""


def shown() -> str:
    """The table."""
    return HEAD + "".join(map(_row, LIVES))


def with_table(text: str) -> str:
    """A page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{shown()}\n{END}{after}"


def _row(life: Life) -> str:
    cells = (life.name, life.what, *_told(life.told), _differences(life))
    return f"| {' | '.join(cells)} |\n"


def _told(told: Told) -> tuple[str, ...]:
    code = "none" if told.code < 0 else f"{told.code} or none" if told.unseen else str(told.code)
    return f"`{told.kind}`", code, "yes" if told.app else "no", ", ".join(f"`{fact}`" for fact in told.says)


def _differences(life: Life) -> str:
    if life.not_embedded:
        return f"real node only: {life.not_embedded}"
    return "; ".join(
        f"{world}: {', '.join(filter(None, _told(told)))}: {why}" for world, (told, why) in life.differs.items()
    )


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
