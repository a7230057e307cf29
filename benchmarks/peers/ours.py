"""A searcher of this project, or one that is written for it, as the benchmark asks it."""

from typing import Any

from peers.method import Params
from searchers import Optimizer, Searcher, Space


class Ours:
    def __init__(self, searcher: Searcher, space: Space, seed: int) -> None:
        self.optimizer = Optimizer(searcher, space, seed=seed)

    def ask(self) -> tuple[Params, Any]:
        trial = self.optimizer.ask()
        return trial.params, trial

    def tell(self, asked: Any, loss: float) -> None:
        self.optimizer.tell(asked, loss)

    def add(self, params: Params, loss: float) -> None:
        self.optimizer.add(params, loss)
