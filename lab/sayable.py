"""Any record as JSON that every reader takes: texts stand for what JSON has no word for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def in_json(record: Any) -> str:
    """One line of JSON; NaN, infinities and objects in it become texts."""
    try:
        return json.dumps(record, allow_nan=False)
    except (ValueError, TypeError):
        return json.dumps(_sayable(record), allow_nan=False)


def _sayable(value: Any) -> Any:
    """The same with texts for what JSON cannot say: NaN, infinities, objects."""
    if isinstance(value, Mapping):
        return {str(key): _sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(item) for item in value]
    sayable = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if sayable else str(value)
