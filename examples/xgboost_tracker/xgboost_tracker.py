#!/usr/bin/env python3
"""XGBoost under muster: rank 0 starts XGBoost's tracker, and everyone gets its arguments by broadcast.

Then XGBoost's workers find each other, and their ranks are muster's. Each trains on its own rows; all end with the same model.

    muster run --worker_num 4 --local_worker_num 4 examples/xgboost_tracker/xgboost_tracker.py digits.csv
"""

import contextlib
import hashlib
import sys

import muster
import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

TIMEOUT_S = 60


@contextlib.contextmanager
def communicator(cluster):
    """XGBoost's communicator of all ranks, as long as the `with` block lasts."""
    tracker = None
    if cluster.rank == 0:
        host = cluster.world.member(0).address.rpartition(":")[0].strip("[]")
        tracker = RabitTracker(n_workers=cluster.size, host_ip=host, sortby="task", timeout=TIMEOUT_S)
        tracker.start()
    arguments = cluster.world.broadcast_object(tracker.worker_args() if tracker else None)
    # Workers are sorted by their task's name, as text, and so get the ranks that they have here.
    with collective.CommunicatorContext(**arguments, dmlc_task_id=f"{cluster.rank:08}", dmlc_timeout=TIMEOUT_S):
        yield
    if tracker:
        tracker.wait_for(TIMEOUT_S)


def main(path, rounds=20):
    with muster.init() as cluster:
        table = np.loadtxt(path, delimiter=",", dtype=np.float32)
        images, labels = table[:, :-1], table[:, -1]
        own = np.arange(cluster.rank, len(table), cluster.size)  # each rank learns from its own images, and is tested on all
        parameters = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "nthread": 1}
        with communicator(cluster):
            ranks_agree = collective.get_rank() == cluster.rank
            model = xgboost.train(parameters, xgboost.DMatrix(images[own], labels[own]), rounds)
        right = np.mean(model.predict(xgboost.DMatrix(images)) == labels)
        digest = hashlib.sha256(model.save_raw("json")).hexdigest()[:16]
        print(f"rank {cluster.rank} of {cluster.size}: XGBoost's rank is {'the same' if ranks_agree else 'another'}, "
              f"{right:.3f} of all images right, model {digest}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
