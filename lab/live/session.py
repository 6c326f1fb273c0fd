"""A live session: policies run one after the other on the same requests while a person watches and moves sliders.

Any thread may call a session's methods. The worker thread alone drives engines; everybody else sets flags, changes
the story that is still to come, or leaves a message in an engine's inbox. Nothing is ever printed from a thread: an
error is kept, shown at once by the dashboard, and raised by `stop()`. A session computes nothing before `start()`,
which is what the Start button calls.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lab.errors import BadRequest, EngineStopped
from lab.live import asked, registry, results
from lab.live.controls import Controls
from lab.live.lane import Lane
from lab.live.limits import checked
from lab.live.news import News
from lab.live.pace import checked_clock
from lab.live.worker import Worker
from lab.metrics import Report
from lab.numbers import whole
from lab.request import SamplingParams
from lab.running import Comparison
from lab.workload import Workload


class Session:
    """`Session(work, model, runs={"static": dict(batching="static:8"), …})`, or one run as **options of `lab.run`.

    `endless` repeats the workload with fresh gaps; `seconds` ends the arrivals of each run (for endless sessions
    30 by default with several runs, 600 with one). A priced model runs on the virtual clock, `speed` virtual
    seconds per real one. `slo` are latency limits in seconds, as in `slo={"ttft": 1, "itl": 0.2}`. A new session
    stops the older one of the same `name`; without a name, the one made by the same notebook cell.
    """

    def __init__(
        self,
        work: Workload,
        model: Any,
        runs: dict[str, dict[str, Any]] | None = None,
        *,
        name: str | None = None,
        endless: bool = False,
        seconds: float | None = None,
        clock: str | None = None,
        speed: float = 1.0,
        warm_up: bool = True,
        long_prompt_tokens: int = 512,
        slo: dict[str, float] | None = None,
        **options: Any,
    ):
        self.work, self.model = work, model
        self.runs = asked.runs_of({"": {}} if runs is None else runs, options)
        policies = [asked.policy_of(own) for own in self.runs.values()]
        if runs is None:
            self.runs = {policies[0].name: options}
        self.slo = checked(slo)
        self.measured = not hasattr(model, "price")
        self.clock = checked_clock(clock or ("wall" if self.measured else "virtual"), speed, seconds)
        self.long_prompt_tokens = whole(long_prompt_tokens, "long_prompt_tokens is", 1, BadRequest)
        self.endless, self.warm_up = endless, warm_up
        self.seconds = seconds if seconds or not endless else (30.0 if len(self.runs) > 1 else 600.0)
        self.controls = Controls.of(work, policies, self.clock, speed)
        self.runs_started = 0
        self.news = News(self)
        self.worker: Worker | None = None  # the present or last run
        self._replaced = False
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.key = name or registry.cell_key(f"{work.name}: {', '.join(self.runs)}")
        registry.register(self.key, self)

    def __repr__(self) -> str:
        return f"<live session: {', '.join(self.runs)} on {self.work.name}>"

    # -- what a person does; any thread ----------------------------------------------------------------------
    def start(self, paused: bool = False) -> None:
        """Run all policies from the beginning at the present settings; a session that runs just goes on."""
        with self._lock:
            if self._replaced:
                raise EngineStopped("this session was replaced by a newer one: use that, or run its cell again")
            if self.alive:
                self.resume()
                return
            for other in registry.sessions():
                if other is not self:
                    other.pause("paused: another session was started")
            self.news.forget()
            self.runs_started += 1
            self.worker = Worker(self, paused)
            self.worker.start()

    def pause(self, note: str = "") -> None:
        """Stand still after the step in flight; the run's clock stands still too."""
        if self.alive:
            self.worker.paused, self.worker.note = True, note
            self.poke()

    def resume(self) -> None:
        """Go on after `pause`."""
        if self.alive:
            self.worker.paused, self.worker.steps_wanted, self.worker.note = False, 0, ""
            self.poke()

    def step(self) -> None:
        """Carry out one engine step, then stand still; waiting is skipped. Starts a session that does not run."""
        with self._lock:
            if not self.alive:
                self.start(paused=True)
            self.worker.paused = True
            self.worker.steps_wanted += 1
        self.poke()

    def stop(self) -> Any:
        """End the run and wait for its threads; raises the error that ended it, if any. `start` begins anew.

        Returns `still()` (None when nothing has run): as the last line of a cell it is what stays in the notebook.
        """
        self.halt()
        if self.error is not None:
            raise self.error
        return self.still() if self.lanes else None

    def halt(self, wait: bool = True) -> None:
        """`stop` without raising."""
        worker = self.worker
        if worker is None:
            return
        worker.halted.set()
        worker.poke()
        if wait:
            for thread in (worker, worker.ticker):
                if thread is not threading.current_thread() and thread.ident is not None:
                    thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all runs are through; False on timeout. For scripts: a notebook cell would only block."""
        if self.worker is not None:
            self.worker.join(timeout)
        return not self.alive

    def set(self, **values: Any) -> int:
        """Change `load` (or `rate`, `pace`), `max_batch`, `speed`, or axes of the policy that runs now.

        Load changes all gaps from now on, for later policies at the same time of theirs. `max_batch` holds for
        all policies that have one. Raises BadPolicy or BadWorkload at once; returns the command's number.
        """
        named = {name: value for name, value in values.items() if name in asked.AXES}
        numbers = {name: self.controls.check(name, value) for name, value in values.items() if name not in named}
        axes = asked.axes_of(named, next(iter(self.runs.values())), self.worker.lane if self.alive else None)
        if axes and not self.alive:
            raise EngineStopped(f"nothing runs whose {', '.join(axes)} could change: start the session first")
        for name, number in numbers.items():
            self.controls.put(name, number)
        return self._post(lambda lane: lane.change(numbers, axes, self.controls))

    def send(self, prompt: str | Sequence[int] | int | None = None, max_tokens: int = 32) -> None:
        """Send a prompt now: a chat message, token ids, or a length (without one, that of the button's long prompt).

        Raises BadRequest for what is no prompt; one that can never be served is refused, and the views say so.
        """
        ids = None if prompt is None else asked.prompt_of(prompt, self.model)
        sampling = SamplingParams(max_tokens=max_tokens)
        if not self.alive:
            raise EngineStopped("nothing runs that could take a prompt: start the session first")
        self._post(lambda lane: lane.send(ids, self.long_prompt_tokens, sampling))

    def abort(self, request: int) -> None:
        """Give up a request of the policy that runs now, by its id."""
        whole(request, "a request id of", 0, BadRequest)
        self._post(lambda lane: lane.engine.abort(request))

    def _post(self, command: Callable[[Lane], None]) -> int:
        """Carry out a command on the lane that runs, or on the next one; the worker confirms it between two steps."""
        with self._lock:
            number = next(self._numbers)
            lane = self.worker.lane if self.alive else None
            if lane is not None and not lane.done:
                command(lane)
                self.worker.commands.append((number, None))
            elif self.alive:
                self.worker.commands.append((number, command))
        self.poke()
        return number

    def replaced(self) -> None:
        """A newer session took this one's name: stop for good."""
        self._replaced = True
        self.halt()
        self.news.publish()

    @property
    def alive(self) -> bool:
        """A run is under way."""
        return self.worker is not None and self.worker.is_alive()

    @property
    def state(self) -> str:
        """ready, preparing, running, paused, finished, stopped, failed, or replaced."""
        return "replaced" if self._replaced else "ready" if self.worker is None else self.worker.state

    @property
    def error(self) -> BaseException | None:
        """What ended the last run, if it was an error."""
        return None if self.worker is None else self.worker.error

    @property
    def lanes(self) -> list[Lane]:
        """The policies that have begun, in order."""
        return [] if self.worker is None else list(self.worker.lanes)

    def poke(self) -> None:
        """Have worker and ticker look at their flags now."""
        if self.worker is not None:
            self.worker.poke()

    def wait_parked(self, timeout: float) -> bool:
        """Wait until nothing computes; False on timeout."""
        self.poke()
        return not self.alive or self.worker.parked.wait(timeout)

    @property
    def reports(self) -> dict[str, Report]:
        """A report per policy that has begun, of what it has done so far."""
        return {lane.name: results.report(lane) for lane in self.lanes}

    def report(self, name: str) -> Report:
        """The report of one policy. Raises KeyError naming those that have begun."""
        return results.report(results.find(self.lanes, name))

    def comparison(self) -> Comparison:
        """All runs so far as `lab.compare` would return them; tokens are compared where both runs finished them."""
        return results.comparison(self.lanes)

    def dashboard(self) -> Any:
        """The live view: a widget, or a picture refreshed in place where widgets cannot work."""
        from lab.live.view import open_view

        return open_view(self)

    def still(self) -> Any:
        """The live view as it is now, as a picture and tables that stay when the notebook is saved."""
        from lab.live.plain import Still

        return Still(self)
