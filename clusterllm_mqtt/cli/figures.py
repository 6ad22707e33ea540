"""How figures look to a person; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from clusterllm_mqtt.models import Info

_AGES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def model_names(info: Info, most: int = 3) -> str:
    """The first few models by their file names."""
    names = [clean(model.name.replace("\\", "/").rsplit("/", 1)[-1], 32) for model in info.models]
    more = f" +{len(names) - most}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(number: int) -> str:
    """Bytes as GiB; unknown is empty."""
    return f"{number / 2**30:.1f} GiB" if number else ""


def ago(seconds: float) -> str:
    """A length of time in its largest unit; never negative, since clocks of two hosts differ."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"
