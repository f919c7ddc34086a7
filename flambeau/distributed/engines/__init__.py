"""What carries collectives: MPI between CPUs (`mpi`), and nothing at all (`fake`, a group of any size in one process)."""
