"""Linear algebra on a Jacobian that is never formed: products, spectra, estimates, steps, Gram products, blocks."""
