"""What the user writes: `d(y)[i] / d(x)[j]`. The only place where the parts below meet."""
