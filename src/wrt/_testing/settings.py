"""How hard the assertions look; `pytest --wrt-points 10 --wrt-seed 3` sets both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Settings:
    """`points`: inputs at which a model is probed, the given one among them. `seed`: of all that is random here."""

    points: int = 3
    seed: int = 0


settings = Settings()
