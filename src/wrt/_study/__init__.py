"""What people do with derivatives once they are easy: steer, watch gradients flow, see what an element sees."""
