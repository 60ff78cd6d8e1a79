"""As all_reduce.c, for PyTorch's own Gloo: all_reduce_torch.py BYTES ITERATIONS, as a worker of a run."""
import sys
import time

import torch
import torch.distributed as dist

numbers, iterations = torch.zeros(int(sys.argv[1]) // 4), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
best = float("inf")
for _ in range(5):
    dist.barrier()
    begin = time.monotonic()
    for _ in range(iterations):
        dist.all_reduce(numbers)
    best = min(best, (time.monotonic() - begin) / iterations)
if dist.get_rank() == 0:
    print("%.9f" % best)
dist.destroy_process_group()
