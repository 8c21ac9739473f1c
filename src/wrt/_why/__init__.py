"""Why a gradient is missing, zero, not finite or wrong."""
