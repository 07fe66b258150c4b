"""The shapes that docstrings of the formulas state, checked in every call; tests/conftest.py installs the hook.

How docstrings state shapes is said in cgp/functional/__init__.py. jaxtyping binds the letters; compiled code is not
checked, since it is traced once and its eager twin is.
"""

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import torch
from docstring_parser import DocstringStyle, parse
from jaxtyping import Shaped, jaxtyped
from torch import Tensor

PACKAGES = ("cgp.functional", "cgp.attention.formulas")

_ROLE = re.compile(r":[\w:]+:`[^`]*`")
_SHAPE = re.compile(r"``(\([^`]*\))``")
_NAMED = re.compile(r"``(\w+)``([^`.,;]*``\([^`]*\)``(?: or broadcastable)?)")


class Shape(NamedTuple):
    """One shape as a docstring states it."""

    text: str
    broadcastable: bool

    def fits(self, value: Tensor, *, argument: bool) -> bool:
        """Whether the value has it, and bind its letters, in a context of jaxtyping."""
        sizes = re.findall(r"[^\s,()]+", self.text.replace("·", "_"))
        sizes = [re.sub(r"^(\d+)(?=[a-zA-Z])", r"\1*", size) for size in sizes]
        several = [place for place, size in enumerate(sizes) if size.startswith("*")]
        if len(several) > 1:  # jaxtyping knows one group of dimensions in a shape
            sizes = ["...", *sizes[several[-1] + 1 :]]
        if self.broadcastable:
            sizes = ["#" + size if size.isidentifier() else size for size in sizes]
            fixed = len(sizes) - len(several[:1])
            sizes = sizes[max(fixed - value.dim(), 0) + len(several[:1]) :] if fixed > value.dim() else sizes
        if argument:
            sizes = [re.sub(r"^\*", "*#", size) for size in sizes]
        annotation: Any = Shaped[Tensor, " ".join(sizes)]
        return isinstance(value, annotation)


Places = list[list[Shape]]
"""For each of several tensors the shapes that it may have."""


class Shapes(NamedTuple):
    """What a docstring states."""

    arguments: Mapping[str, Places]
    results: Places


class WrongShapeError(AssertionError):
    """A tensor has another shape than a docstring states."""


def _places(text: str | None) -> Places:
    """The shapes in a text: those after "or" are alternatives, others are of further tensors."""
    text, end = text or "", 0
    places: Places = []
    for found in _SHAPE.finditer(text):
        before, end = text[end : found.start()], found.end()
        shape = Shape(found[1], "broadcastable to" in before or text[end:].startswith((" or broadcastable", ", or b")))
        if places and re.search(r"\bor\b", before):
            places[-1].append(shape)
        else:
            places.append([shape])
    return places


@functools.cache
def stated(doc: str | None, module_doc: str | None = None) -> Shapes:
    """The shapes that the docstring of a function or class states, and that of its module."""
    parsed = parse(_ROLE.sub("", doc or ""), DocstringStyle.GOOGLE)
    summary, longer = parsed.short_description or "", parsed.long_description or ""
    named = [*_NAMED.findall(_ROLE.sub("", module_doc or "")), *_NAMED.findall(summary), *_NAMED.findall(longer)]
    arguments = {name: _places(text) for name, text in named}
    of_params = {param.arg_name.lstrip("*"): _places(param.description) for param in parsed.params}
    arguments |= {name: places for name, places in of_params.items() if places}
    results = parsed.returns.description if parsed.returns else _NAMED.sub("", summary)
    return Shapes(arguments, _places(results))


def _tensors(value: Any, places: Places) -> Iterator[tuple[Tensor, list[Shape]]]:
    """Tensors of a value, a tensor or a tuple of them, and the shapes that each may have."""
    if isinstance(value, Tensor):
        yield value, places[0]
    elif type(value) is tuple:
        each = places * len(value) if len(places) == 1 else places
        yield from ((x, shapes) for x, shapes in zip(value, each, strict=False) if isinstance(x, Tensor))


Known = list[tuple[str, Tensor, list[Shape]]]


def _check(where: str, known: Known, results: Known) -> None:
    with jaxtyped("context"):
        for name, value, shapes in known + results:
            is_argument = name != "the result"
            if not any(shape.fits(value, argument=is_argument) for shape in shapes):
                expected = " or ".join(shape.text for shape in shapes)
                others = ", ".join(f"{other} {tuple(x.shape)}" for other, x, _ in known)
                raise WrongShapeError(
                    f"{where}: {name}: expected {expected}, as its docstring says, got {tuple(value.shape)}, where "
                    f"the arguments have {others or 'no shapes'}; mend the caller or the docstring"
                )


def _known(values: Mapping[str, Any], stated_of: Mapping[str, Places]) -> Known:
    return [
        (name, tensor, shapes)
        for name, places in stated_of.items()
        if (value := values.get(name)) is not None
        for tensor, shapes in _tensors(value, places)
    ]


def _attributes(owner: Any) -> Known:
    """Attributes of an instance whose class states their shapes."""
    values: dict[str, Any] = owner._asdict() if hasattr(owner, "_asdict") else vars(owner)
    return _known(values, stated(type(owner).__doc__).arguments)


T = TypeVar("T", bound=Callable[..., Any])


def checked(formula: T) -> T:
    """The function, or class, whose calls are checked against its docstring."""
    if not isinstance(formula, type):
        return _checked_function(formula, formula.__doc__, formula.__globals__.get("__doc__"))
    if issubclass(formula, tuple):
        setattr(formula, "__new__", staticmethod(_checked_function(formula.__new__, formula.__doc__)))  # noqa: B010
    elif "__init__" in vars(formula):
        setattr(formula, "__init__", _checked_function(vars(formula)["__init__"], formula.__doc__))  # noqa: B010
    return formula


def _checked_function(function: Any, doc: str | None, module_doc: str | None = None) -> Any:
    shapes = stated(doc, module_doc)
    names, where = list(inspect.signature(function).parameters), function.__qualname__
    seen: set[tuple[Any, ...]] = set()
    of_owner = names[:1] == ["self"] and function.__name__ != "__init__"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        known = _known({**dict(zip(names, args, strict=False)), **kwargs}, shapes.arguments)
        if of_owner:
            known = _attributes(args[0]) + known
        key: tuple[Any, ...] = tuple((name, tensor.shape) for name, tensor, _ in known)
        if key not in seen:  # the same shapes are checked once
            _check(where, known, [])
            seen.add(key)
        value = function(*args, **kwargs)
        results = [("the result", *pair) for pair in _tensors(value, shapes.results)] if shapes.results else []
        if results and (key := (*key, *(tensor.shape for _, tensor, _ in results))) not in seen:
            _check(where, known, results)
            seen.add(key)
        return value

    return call


class _Loader(SourceFileLoader):
    """Decorates public functions, classes and methods where they are defined, so that each is one object."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        for node in tree.body:
            _decorate(node)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["_checked"] = checked
        super().exec_module(module)


def _decorate(node: ast.stmt) -> None:
    if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):  # __init__: with its class
        return
    decorator = ast.copy_location(ast.Name("_checked", ast.Load()), node)
    if isinstance(node, ast.FunctionDef):
        node.decorator_list.append(decorator)  # the innermost: inside of property and the like
    else:
        node.decorator_list.insert(0, decorator)
        for inner in node.body:
            _decorate(inner)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not any(fullname.startswith(f"{package}.") for package in PACKAGES):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Check the modules of :data:`PACKAGES`, none of which may have been imported before."""
    early = [name for name in sys.modules if name.startswith(PACKAGES)]
    if early:
        raise RuntimeError(
            f"expected the hook to come before the formulas, but {early} are imported; import them later"
        )
    sys.meta_path.insert(0, _Finder())
