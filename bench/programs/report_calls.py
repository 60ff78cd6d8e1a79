"""What one call of report(metrics) costs: report_calls.py OUT N. One worker calls it N times back to back, and writes the
median and the 99th percentile in microseconds."""
import sys


def train(config):
    import time

    import trainyard

    taken = []
    for step in range(config["n"]):
        begin = time.perf_counter()
        trainyard.report({"loss": 1 / (step + 1), "step": step, "epoch": step // 100})
        taken.append(time.perf_counter() - begin)
    taken.sort()
    with open(config["out"], "w") as f:
        f.write(f"{taken[len(taken) // 2] * 1e6} {taken[int(len(taken) * 0.99)] * 1e6}")


if __name__ == "__main__":
    import trainyard

    trainyard.DataParallelTrainer(train, train_loop_config={"out": sys.argv[1], "n": int(sys.argv[2])},
                                  run_config=trainyard.RunConfig(storage_path=sys.argv[1] + "-runs")).fit()
