"""Where a run stands and what was measured along the way."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dmlmc.estimators import GradientEstimator
from dmlmc.schedule import cumulative


@dataclass
class Record:
    """The position of a run, and the losses of every seed at the steps at which it was evaluated."""

    step: int = 0
    seconds: float = 0.0
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    losses: list[np.ndarray] = field(default_factory=list)

    def advance(self, step: int, seconds: float) -> None:
        """The run has reached a step, after so many more seconds."""
        self.step, self.seconds = step, self.seconds + seconds

    def add(self, losses: np.ndarray) -> None:
        """Note the losses of every seed at the present step."""
        self.steps.append(self.step)
        self.times.append(self.seconds)
        self.losses.append(losses)

    def is_due(self, evaluate_every: int, last: int) -> bool:
        """Whether the present step is to be evaluated and has not been yet."""
        return (self.step == last or self.step % evaluate_every == 0) and self.step not in self.steps[-1:]

    def mean_loss(self) -> float:
        """The last loss, averaged over seeds; NaN if there is none yet."""
        return float(np.mean(self.losses[-1])) if self.losses else np.nan

    def arrays(self) -> dict[str, np.ndarray]:
        """The record as arrays, for a checkpoint."""
        columns = {"step": np.array(self.steps), "seconds": np.array(self.times), "loss": np.array(self.losses)}
        return {**columns, "position": np.array([self.step, self.seconds])}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], evaluate_every: int) -> "Record":
        """The record that ``arrays`` was made of.

        A shorter run evaluates its last step. If that is no multiple of ``evaluate_every``, it is left out.
        """
        step, seconds = arrays["position"]
        columns = arrays["step"].tolist(), arrays["seconds"].tolist(), list(arrays["loss"])
        if columns[0] and columns[0][-1] % evaluate_every:
            columns = tuple(column[:-1] for column in columns)  # type: ignore[assignment]
        return cls(int(step), float(seconds), *columns)

    def table(self, estimator: GradientEstimator) -> pd.DataFrame:
        """One row per seed and evaluation: ``method, seed, step, work, span, seconds, loss``."""
        seeds = len(self.losses[0])
        work, span = (cumulative(cost, self.step)[self.steps] for cost in (estimator.work, estimator.span))
        return pd.DataFrame(
            {
                "method": estimator.method,
                "seed": np.repeat(np.arange(seeds), len(self.steps)),
                "step": np.tile(self.steps, seeds),
                "work": np.tile(work, seeds),
                "span": np.tile(span, seeds),
                "seconds": np.tile(self.times, seeds),
                "loss": np.stack(self.losses, axis=1).ravel(),
            }
        )
