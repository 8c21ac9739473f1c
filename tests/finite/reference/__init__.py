"""Central differences on NumPy: slow, framework-free, and the number every other backend is checked against."""
