"""Colours, labels and units, each defined once: figures, dashboard and fallback renderer read them from here.

Colours are those of Okabe and Ito, chosen so that people with any common colour blindness tell them apart. A
colour never carries a meaning alone: waste is hatched, queues are thin, policies have names and dashes.
"""

from __future__ import annotations

from dataclasses import dataclass

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

#: Grey that is readable on white and on black alike: text and lines of figures with a transparent background.
INK, GRID = "#7b7b7b", "rgba(128, 128, 128, 0.22)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Kind:
    """Something a request can be doing, and how it looks."""

    name: str
    label: str
    short: str
    color: str
    hatched: bool = False
    backward: bool = False  # hatched the other way
    thin: bool = False


#: What a request does, in the order of the legend. Codes are the position: traces on the wire use them.
KINDS = (
    Kind("queue", "queue", "queue", "#9aa0a6", thin=True),
    Kind("prefill", "prompt (prefill)", "prefill", ORANGE),
    Kind("decode", "output tokens (decode)", "decode", SKY),
    Kind("wasted", "finished, still computed", "after the end", PURPLE, hatched=True),
    Kind("preempted", "preempted", "preempted", YELLOW, thin=True),
    Kind("held", "runs, but not in this step", "held", "#9aa0a6", hatched=True, thin=True),
    Kind("padding", "padding", "padding", VERMILLION, hatched=True, backward=True),
    Kind("cached", "found in the prefix cache", "from the cache", GREEN),
)
KIND = {kind.name: kind for kind in KINDS}
CODE = {kind.name: code for code, kind in enumerate(KINDS)}

#: Where a request's time goes (lab.live.split): the words for it, and the kind whose colour it has.
PARTS = {
    "queueing": ("queueing", "queue"),
    "prefill": ("prefill", "prefill"),
    "decode": ("decode", "decode"),
    "stall": ("stalled", "held"),
    "preemption": ("preempted, then computed again", "preempted"),
    "delivery": ("waiting for delivery", "wasted"),
}

#: Requests in the block map take these in turn: Okabe and Ito's, and the same mixed half and half with white.
OWNER_COLORS = (
    *(SKY, ORANGE, PURPLE, BLUE, VERMILLION),
    *("#AADAF4", "#F3CF80", "#E6BCD3", "#80B9D9", "#EBAF80"),
)

#: Policies in the order in which they are compared.
POLICY_COLORS = (PURPLE, GREEN, BLUE, ORANGE, VERMILLION, SKY)
POLICY_DASHES = ("solid", "solid", "dash", "dot", "dashdot", "longdash")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def policy_color(index: int) -> str:
    """Colour of the index-th policy of a comparison."""
    return POLICY_COLORS[index % len(POLICY_COLORS)]


def policy_dash(index: int) -> str:
    """Dash of the index-th policy: where a colour comes again, the line has another dash, however many there are."""
    again, place = divmod(index, len(POLICY_COLORS))
    if again >= len(_DASHES):
        return f"{2 * again}px,3px"
    return _DASHES[(_DASHES.index(POLICY_DASHES[place]) + again) % len(_DASHES)]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number people look at: its label, its unit, and which direction is better."""

    label: str
    unit: str
    digits: int = 2
    more_is_better: bool | None = None

    @property
    def title(self) -> str:
        """Axis title: label and unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


QUANTITIES = {
    "time": Quantity("time", "s"),
    "output_tokens_per_s": Quantity("output tokens", "tokens/s", 1, True),
    "requests_per_s": Quantity("finished requests", "requests/s", 2, True),
    "ttft_s": Quantity("time to first token", "s", 2, False),
    "tpot_s": Quantity("time per output token", "s", 3, False),
    "itl_s": Quantity("inter-token latency", "s", 3, False),
    "e2e_s": Quantity("end-to-end latency", "s", 2, False),
    "waiting": Quantity("waiting requests", "", 0),
    "running": Quantity("running requests", "", 0),
    "utilisation": Quantity("utilisation", "%", 0),
    "computed_tokens": Quantity("computed tokens", "tokens", 0),
    "rate": Quantity("load", "requests/s"),
    "load": Quantity("load", "× capacity"),
    "pace": Quantity("load", "× recorded pace"),
    "max_batch": Quantity("batch size", "requests", 0),
    "batching": Quantity("batching", ""),
    "sent": Quantity("prompt sent", "tokens", 0),
    "speed": Quantity("playback speed", "×"),
}


def clock_name(measured: bool) -> str:
    """What every plot says about its time axis."""
    return "measured" if measured else "simulated"


def number(value: float | None, digits: int = 2) -> str:
    """A number for people: about three significant digits, a dash for None."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) < 10**-digits:
        return f"{value:.2g}"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:,.0f}"
