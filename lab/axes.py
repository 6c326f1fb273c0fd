"""Axis values by name: `static:8`, `budget:256`, `mymodule:MyPolicy`. A new policy class needs no registration.

A spec is a name and arguments separated by colons. `2ms`, `1.5s` and `300us` are seconds; `key=value` passes by
keyword; everything else that reads as a number is one.
"""

from __future__ import annotations

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from lab.errors import BadPolicy

_HOMES = {
    "batching": "lab.batching",
    "chunking": "lab.chunking",
    "ordering": "lab.ordering",
    "preemption": "lab.preemption",
}
_PARTS = {"control": "lab.batching.control"}  # policies that others hold
_METHODS = {"batching": "admit", "chunking": "budget", "ordering": "key", "preemption": "victim", "control": "limits"}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@cache
def policies(axis: str) -> dict[str, type]:
    """Every policy class of an axis by its `name`, found by looking through the axis' modules."""
    home = import_module((_HOMES | _PARTS)[axis])
    modules = [home]
    for info in pkgutil.iter_modules(getattr(home, "__path__", [])):
        modules.append(import_module(f"{home.__name__}.{info.name}"))
    found = {}
    for module in modules:
        for value in vars(module).values():
            own = inspect.isclass(value) and value.__module__ == module.__name__
            if own and isinstance(getattr(value, "name", None), str):
                found[value.name] = value
    return found


def parse(axis: str, spec: Any, *settings: Any, **named: Any) -> Any:
    """A policy object from a spec; anything that is not a string is taken to be one already.

    `settings` and `named` are further arguments, as if the spec went on with them.
    """
    if not isinstance(spec, str):
        if settings or named:
            raise BadPolicy(f"{axis} {spec!r} with {[*settings, *named]}: arguments go with a name, not with an object")
        return _checked(axis, spec)
    spec = ":".join([spec, *map(str, settings), *(f"{key}={value}" for key, value in named.items())])
    name, *arguments = spec.split(":")
    if name in policies(axis):
        return _build(axis, spec, policies(axis)[name], arguments)
    if name and arguments:
        try:
            policy = getattr(import_module(name), arguments[0])
        except (ImportError, AttributeError):
            pass
        else:
            return _checked(axis, _build(axis, spec, policy, arguments[1:]))
    known = ", ".join(sorted(policies(axis)))
    raise BadPolicy(f"{axis} {spec!r} is not known; there are {known}, or module:Class")


def _checked(axis: str, policy: Any) -> Any:
    """`policy` if it can be one. Raises BadPolicy naming the method it lacks."""
    method = _METHODS[axis]
    if isinstance(policy, type) or not callable(getattr(policy, method, None)):
        raise BadPolicy(f"{axis} {policy!r} is no policy of that axis: those are objects with a method {method!r}")
    return policy


def _build(axis: str, spec: str, policy: type, arguments: list[str]) -> Any:
    args, kwargs = [], {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals:
            kwargs[key] = _value(value)
        else:
            args.append(_value(argument))
    try:
        return policy(*args, **kwargs)
    except TypeError as error:
        raise BadPolicy(f"{axis} {spec!r}: {error}; it takes {inspect.signature(policy)}") from error


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    for unit, factor in _UNITS.items():
        try:
            return float(text.removesuffix(unit)) * factor if text.endswith(unit) else float("x")
        except ValueError:
            pass
    return text


def describe(policy: Any) -> str:
    """The spec of a policy: its `spec` if it has one (it holds another policy), else its name and arguments."""
    if hasattr(policy, "spec"):
        return policy.spec
    values = []
    for parameter in inspect.signature(type(policy)).parameters.values():
        value = getattr(policy, parameter.name, None)
        if value is not None and value != parameter.default or parameter.default is parameter.empty:
            values.append(getattr(value, "name", value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            values.append(value)
    return ":".join([policy.name, *(f"{value:g}" if isinstance(value, float) else str(value) for value in values)])
