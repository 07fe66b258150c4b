"""`python -m experiments.studies` lists the studies, each of which is a command of its own."""

import ast
from pathlib import Path

__all__ = ["listing"]


def listing() -> str:
    """The command of each study and what it is about, a line each."""
    places = [*Path(__file__).parent.glob("*.py"), *Path(__file__).parent.glob("*/__init__.py")]
    found = {path.parent.name if path.stem == "__init__" else path.stem: path for path in places}
    lines = []
    for name, path in sorted(found.items()):
        text = path.read_text(encoding="utf-8")
        if (path.parent.name != name and "__main__" not in text) or name in ("__main__", "studies"):
            continue
        about = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        lines.append(f"python -m experiments.studies.{name}\n    {about}\n")
    return "".join(lines)


if __name__ == "__main__":
    print(listing(), end="")
