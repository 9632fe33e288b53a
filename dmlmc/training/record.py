"""Where a run stands and what was measured along the way."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float

# Of every record, of a sweep as well. The metrics stand between the last two.
OF_SWEEPS = "optimiser", "learning_rate", "run"
COLUMNS = "method", *OF_SWEEPS, "seed", "step", "work", "span", "seconds", "loss", "diverged_at"
METRIC = "metric "  # before the name of a metric in a checkpoint


@dataclass
class Record:
    """The position of a run, and the losses and metrics of every seed at the steps at which it was evaluated."""

    start: int
    diverged_at: Float[np.ndarray, " seeds"]  # the step, NaN for a seed that did not diverge
    step: int
    seconds: float
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    losses: list[np.ndarray] = field(default_factory=list)
    metrics: list[dict[str, np.ndarray]] = field(default_factory=list)

    @classmethod
    def at(cls, start: int, seconds: float, seeds: int) -> "Record":
        """The record of a run that starts at a step."""
        return cls(start, np.full(seeds, np.nan), start, seconds)

    def advance(self, step: int, seconds: float) -> None:
        """The run has reached a step, after so many more seconds."""
        self.step, self.seconds = step, self.seconds + seconds

    def add(self, losses: np.ndarray, metrics: dict[str, np.ndarray]) -> None:
        """Note the losses and metrics of every seed at the present step."""
        self.steps.append(self.step)
        self.times.append(self.seconds)
        self.losses.append(losses)
        self.metrics.append(metrics)

    def is_due(self, evaluate_every: int, last: int) -> bool:
        """Whether the present step is to be evaluated and has not been yet."""
        due = self.step in (self.start, last) or self.step % evaluate_every == 0
        return due and not self.is_evaluated()

    def is_evaluated(self) -> bool:
        """Whether the present step has been evaluated."""
        return self.step in self.steps[-1:]

    def all_diverged(self) -> bool:
        """Whether no seed is left."""
        return not np.any(np.isnan(self.diverged_at))

    def mean_loss(self) -> float:
        """The last loss, averaged over seeds; NaN if there is none yet."""
        return float(np.mean(self.losses[-1])) if self.losses else np.nan

    def arrays(self) -> dict[str, np.ndarray]:
        """The record as arrays, for a checkpoint."""
        columns = {"step": np.array(self.steps), "seconds": np.array(self.times), "loss": np.array(self.losses)}
        names = self.metrics[0] if self.metrics else {}
        metrics = {f"{METRIC}{name}": np.array([row[name] for row in self.metrics]) for name in names}
        position = {"position": np.array([self.step, self.seconds]), "diverged_at": self.diverged_at}
        return {**columns, **metrics, **position}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], start: int, evaluate_every: int) -> "Record":
        """The record that ``arrays`` was made of, of a run from ``start``.

        A shorter run evaluates its last step. If that is no multiple of ``evaluate_every``, it is left out.
        """
        step, seconds = arrays["position"]
        steps, diverged_at = arrays["step"].tolist(), np.array(arrays["diverged_at"])
        if steps and steps[-1] % evaluate_every and steps[-1] != start:
            diverged_at[diverged_at == steps.pop()] = np.nan  # known by the loss that is left out
        rows = range(len(steps))
        names = [name for name in arrays if name.startswith(METRIC)]
        return cls(
            start,
            diverged_at,
            int(step),
            float(seconds),
            steps,
            arrays["seconds"].tolist()[: len(steps)],
            list(arrays["loss"][: len(steps)]),
            [{name.removeprefix(METRIC): arrays[name][row] for name in names} for row in rows],
        )

    def table(
        self, method: str, work: Float[np.ndarray, " evaluations"], span: Float[np.ndarray, " evaluations"]
    ) -> pd.DataFrame:
        """One row per seed and evaluation, with the cumulative costs at the evaluations."""
        seeds = len(self.diverged_at)

        def by_seed(values):
            return np.stack(values, axis=1).ravel()

        names = self.metrics[0] if self.metrics else {}
        return pd.DataFrame(
            {
                "method": method,
                "seed": np.repeat(np.arange(seeds), len(self.steps)),
                "step": np.tile(self.steps, seeds),
                "work": np.tile(work, seeds),
                "span": np.tile(span, seeds),
                "seconds": np.tile(self.times, seeds),
                "loss": by_seed(self.losses),
                **{name: by_seed([row[name] for row in self.metrics]) for name in names},
                "diverged_at": np.repeat(self.diverged_at, len(self.steps)),
            }
        )
