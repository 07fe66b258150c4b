"""Pages that need nothing but themselves, from the templates that lie beside this module."""

from pathlib import Path
from typing import Any

import jinja2

from experiments.storage import write_text

__all__ = ["write_page"]

_TEMPLATES = Path(__file__).parent / "templates"


def write_page(path: Path, template: str, **values: Any) -> None:
    """Fill a template and write the page aside before it takes its name.

    Args:
        path: of the page.
        template: its name, `templates/<template>.html`.
        values: what the template asks for; a missing one is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    write_text(path, environment.get_template(f"{template}.html").render(**values))
