"""What `scripts/bench_peers.py` and `scripts/bench_gigabit.py` are made of."""
