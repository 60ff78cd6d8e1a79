"""A script as people write it for torchrun: torch_script.py MARKS. Every rank writes to MARKS/RANK when its first all-reduce was done
(CLOCK_MONOTONIC, which all processes of a machine share)."""
import os
import sys
import time

import torch
import torch.distributed as dist


def main(marks):
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    reduced = time.monotonic()
    with open(os.path.join(marks, str(dist.get_rank())), "w") as f:
        f.write(str(reduced))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
