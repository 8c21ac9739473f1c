"""TensorFlow: one persistent tape over one real, eager run, differentiated by the tape itself."""
