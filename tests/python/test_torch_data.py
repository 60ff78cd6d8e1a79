"""prepare_data_loader: shares, epochs, and every option of the loader kept."""

import collections
import copy
import logging
import random

import pytest
from trainyard import runtime
from trainyard.torch import devices, prepare_data_loader

torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)


class Numbers(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))


class Session(runtime.Session):
    def __init__(self, rank, size):
        self.world_rank, self.world_size = rank, size


@pytest.fixture
def on(monkeypatch):
    """on(rank, size): from now on this process is that rank."""
    yield lambda rank, size: monkeypatch.setattr(runtime, "_session", Session(rank, size))


def read(loader):
    return [batch.tolist() for batch in loader]


def test_outside_of_a_training_function():
    with pytest.raises(RuntimeError, match="prepare_data_loader.*outside of a Trainyard training function"):
        prepare_data_loader(DataLoader(Numbers(4)))


def test_one_worker_keeps_its_loader(on):
    on(0, 1)
    loader = DataLoader(Numbers(4))
    assert prepare_data_loader(loader) is loader


def test_in_order(on):
    given = DataLoader(Numbers(10), batch_size=2)
    found = []
    for rank in range(3):
        on(rank, 3)
        loader = prepare_data_loader(given)
        assert type(loader.sampler) is not SequentialSampler and isinstance(
            loader.sampler, DistributedSampler
        )
        assert read(loader) == read(loader), "no shuffling: each epoch is alike"
        found += read(loader)
    # 10 examples for 3 workers: two are read twice, so that all make equally many steps
    assert found == [[0, 3], [6, 9], [1, 4], [7, 0], [2, 5], [8, 1]]
    assert read(given) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], "what was given is as it was"


def flat(batches):
    return [one for batch in batches for one in batch]


def test_shuffled_other_each_epoch(on):
    epochs = collections.defaultdict(list)
    for rank in range(2):
        on(rank, 2)
        loader = prepare_data_loader(DataLoader(Numbers(20), batch_size=5, shuffle=True))
        for epoch in range(3):
            epochs[epoch].append(flat(read(loader)))
    orders = [tuple(map(tuple, shares)) for shares in epochs.values()]
    assert len(set(orders)) == 3
    assert all(sorted(flat(shares)) == list(range(20)) for shares in epochs.values())


def test_set_epoch_by_hand(on):
    on(0, 2)
    loader = prepare_data_loader(DataLoader(Numbers(20), shuffle=True))
    by_hand = []
    for epoch in (0, 1, 1):
        loader.sampler.set_epoch(epoch)
        by_hand.append(read(loader))
    assert by_hand[1] == by_hand[2] != by_hand[0]
    assert read(loader) == by_hand[2], "the caller says which from then on"
    plain = DistributedSampler(Numbers(20), num_replicas=2, rank=0)
    plain.set_epoch(1)
    assert flat(by_hand[1]) == list(plain)


def init_worker(index):
    pass


def collate(items):
    return torch.tensor(items)


@pytest.mark.parametrize("batched", [True, False])
def test_every_option_is_kept(on, batched):
    on(1, 2)
    options = {
        "num_workers": 1,
        "collate_fn": collate,
        "pin_memory": False,
        "timeout": 7,
        "worker_init_fn": init_worker,
        "multiprocessing_context": "fork",
        "generator": torch.Generator(),
        "prefetch_factor": 3,
        "persistent_workers": True,
        "in_order": False,
    }
    options.update({"batch_size": 3, "drop_last": True} if batched else {"batch_size": None})
    given = DataLoader(Numbers(16), **options)
    loader = prepare_data_loader(given)
    for name in options:
        assert getattr(loader, name) == getattr(given, name), name
    changed = {name for name, value in vars(loader).items() if vars(given)[name] is not value}
    assert changed == ({"sampler", "batch_sampler"} if batched else {"sampler"})
    if batched:
        assert read(loader) == [[1, 3, 5], [7, 9, 11]] and len(loader) == 2, "the incomplete batch is dropped"
        assert read(loader) == [[1, 3, 5], [7, 9, 11]], "by the same worker process"
    else:
        assert len(loader) == 8 and list(loader.sampler) == [1, 3, 5, 7, 9, 11, 13, 15]


def test_a_class_of_ones_own(on):
    class Mine(DataLoader):
        def __init__(self, n):
            super().__init__(Numbers(n), batch_size=2)
            self.mine = "kept"

    on(0, 2)
    loader = prepare_data_loader(Mine(8))
    assert type(loader) is Mine and loader.mine == "kept" and read(loader) == [[0, 2], [4, 6]]


@pytest.mark.parametrize(
    "given",
    [
        lambda: DataLoader(Stream(), batch_size=2),
        lambda: DataLoader(Numbers(8), sampler=DistributedSampler(Numbers(8), 2, 0)),
        lambda: DataLoader(
            Numbers(8), batch_sampler=BatchSampler(DistributedSampler(Numbers(8), 2, 0), 2, False)
        ),
    ],
)
def test_loaders_left_alone(on, given):
    on(1, 2)
    loader = given()
    assert prepare_data_loader(loader) is loader


def test_not_asked_for(on):
    on(1, 2)
    loader = DataLoader(Numbers(8))
    assert prepare_data_loader(loader, add_dist_sampler=False) is loader


@pytest.mark.parametrize(
    "sampler, warns",
    [
        (SequentialSampler(Numbers(8)), False),
        (RandomSampler(Numbers(8)), False),
        (RandomSampler(Numbers(8), replacement=True), True),
        (RandomSampler(Numbers(8), num_samples=4), True),
        (WeightedRandomSampler([1.0] * 8, 8), True),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_sampler_that_is_replaced_is_told_of_by_rank_zero(on, caplog, sampler, warns, rank):
    on(rank, 2)
    with caplog.at_level(logging.WARNING, "trainyard"):
        prepare_data_loader(DataLoader(Numbers(8), sampler=sampler))
    assert (f"{type(sampler).__name__} of the data loader is replaced" in caplog.text) == (
        warns and rank == 0
    )


def test_a_plain_batch_sampler_is_made_anew(on):
    on(1, 2)
    given = DataLoader(
        Numbers(10), batch_sampler=BatchSampler(SequentialSampler(Numbers(10)), 2, drop_last=True)
    )
    loader = prepare_data_loader(given)
    assert read(loader) == [[1, 3], [5, 7]]


class Buckets:
    """A batch sampler of one's own, without a length where there is none."""

    def __init__(self, batches):
        self.batches = batches
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.mark.parametrize(
    "n, expected",
    [
        (4, [[[0], [2]], [[1], [3]]]),
        (5, [[[0], [2], [4]], [[1], [3], [0]]]),
        (1, [[[0]], [[0]]]),
        (0, [[], []]),
    ],
)
def test_a_batch_sampler_of_ones_own_is_dealt_out(on, n, expected):
    found = []
    for rank in range(2):
        on(rank, 2)
        loader = prepare_data_loader(DataLoader(Numbers(9), batch_sampler=Buckets([[i] for i in range(n)])))
        found.append(read(loader))
        assert len(loader) == len(found[-1])
    assert found == expected


def test_rounds_that_are_not_full(on):
    for n in range(1, 14):
        shares = []
        for rank in range(4):
            on(rank, 4)
            batches = Buckets([[i] for i in range(n)])
            shares.append(flat(read(prepare_data_loader(DataLoader(Numbers(20), batch_sampler=batches)))))
        assert len({len(share) for share in shares}) == 1, n
        assert set(flat(shares)) == set(range(n)), n


def test_a_batch_sampler_keeps_its_methods(on):
    on(0, 2)
    given = DataLoader(Numbers(9), batch_sampler=Buckets([[0], [1]]))
    loader = prepare_data_loader(given)
    loader.batch_sampler.set_epoch(3)
    assert given.batch_sampler.epoch == 3
    assert copy.copy(loader.batch_sampler).epoch == 3


# -- batches on a device. The device "meta" is everywhere; its tensors have no numbers.


@pytest.fixture
def meta(monkeypatch, on):
    monkeypatch.setattr(devices, "of_session", lambda session: [torch.device("meta")])
    on(0, 1)


Pair = collections.namedtuple("Pair", "first second")


class Movable:
    where = "cpu"

    def to(self, device, non_blocking=False):
        made = Movable()
        made.where = str(device)
        return made


def as_given(items):
    return items[0]


def test_batches_come_on_the_device(meta):
    item = {
        "a": torch.ones(2),
        "b": [torch.ones(1), "text"],
        "c": Pair(torch.ones(1), (3, None)),
        "d": Movable(),
    }
    given = DataLoader([item], collate_fn=as_given, num_workers=0)
    loader = prepare_data_loader(given)
    (moved,) = list(loader)
    assert moved["a"].device.type == moved["b"][0].device.type == moved["c"].first.device.type == "meta"
    assert moved["b"][1] == "text" and moved["c"].second == (3, None) and isinstance(moved["c"], Pair)
    assert moved["d"].where == "meta" and item["a"].device.type == "cpu"


def test_a_moving_loader_is_the_loader_otherwise(meta):
    given = DataLoader(Numbers(5), batch_size=2, generator=torch.Generator())
    loader = prepare_data_loader(given)
    assert isinstance(loader, DataLoader) and len(loader) == 3
    assert loader.sampler is given.sampler and loader.dataset is given.dataset
    loader.worker_init_fn = init_worker
    assert given.worker_init_fn is init_worker
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 3


def test_not_moved(meta):
    loader = DataLoader(Numbers(5))
    assert prepare_data_loader(loader, move_to_device=False) is loader


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("auto", [True, False])
def test_copied_ahead(monkeypatch, on, auto):
    monkeypatch.setattr(devices, "of_session", lambda session: [torch.device("cuda", 0)])
    on(0, 1)
    data = [torch.full((1 << 16,), float(i)) for i in range(20)]
    loader = prepare_data_loader(DataLoader(data, batch_size=2, pin_memory=True), auto_transfer=auto)
    for _ in range(2):
        found = [(batch.device.type, batch.sum().item()) for batch in loader]
        assert found == [("cuda", (4 * i + 1) * float(1 << 16)) for i in range(10)]


def test_seeded_alike(on):
    """Nothing of the loader's own random numbers is used up by preparing it."""
    on(0, 2)
    torch.manual_seed(3)
    random.seed(3)
    before = torch.get_rng_state(), random.getstate()
    prepare_data_loader(DataLoader(Numbers(8), shuffle=True))
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
