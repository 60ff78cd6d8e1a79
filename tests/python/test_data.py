"""Data sets: their steps, their order, the batches that come out, and what every rank gets of them."""

import asyncio
import itertools
import threading

import numpy as np
import pytest
from conftest import join_readers
from trainyard import data
from trainyard.data import preprocessors, tensors


def batches(dataset, **options):
    return list(dataset.iter_batches(**options))


def ids(dataset, column="id"):
    return [row[column] for row in dataset.iter_rows()]


# -- batches


def test_batches_have_their_size_and_the_rest_is_last():
    dataset = data.range(600, override_num_blocks=7)
    assert [len(batch["id"]) for batch in batches(dataset)] == [256, 256, 88]
    assert [len(batch["id"]) for batch in batches(dataset, drop_last=True)] == [256, 256]
    assert [len(batch["id"]) for batch in batches(dataset, batch_size=None)] == [85, 86, 86, 85, 86, 86, 86]
    assert np.concatenate([batch["id"] for batch in batches(dataset, batch_size=9)]).tolist() == list(
        range(600)
    )


def test_the_forms_of_a_batch():
    import pandas
    import pyarrow

    dataset = data.from_items([{"a": 1, "b": "x"}, {"a": None, "b": "y"}])
    (arrays,) = batches(dataset)
    assert arrays["a"].dtype == np.float64 and np.isnan(arrays["a"][1]) and arrays["b"].tolist() == ["x", "y"]
    (frame,) = batches(dataset, batch_format="pandas")
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == ["a", "b"]
    (table,) = batches(dataset, batch_format="pyarrow")
    assert isinstance(table, pyarrow.Table) and table.column("a").to_pylist() == [1, None]
    assert dataset.take() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    with pytest.raises(ValueError, match="batch format xx isn't allowed"):
        dataset.iter_batches(batch_format="xx")
    with pytest.raises(ValueError, match="batch_size"):
        dataset.iter_batches(batch_size=0)


def test_tensors_stay_arrays_and_ragged_ones_are_objects():
    dataset = data.from_numpy(np.zeros((5, 2, 3), np.float32))
    assert batches(dataset, batch_size=4)[0]["data"].shape == (4, 2, 3)
    assert dataset.take(1)[0]["data"].shape == (2, 3)
    assert "shape=(2, 3)" in str(dataset.schema())
    table = batches(dataset, batch_format="pyarrow")[0]
    assert data.from_arrow(table).take_batch()["data"].shape == (5, 2, 3)
    ragged = data.from_items([{"a": np.ones(2)}, {"a": np.ones(3)}]).take_batch()["a"]
    assert ragged.dtype == object and [len(one) for one in ragged] == [2, 3]
    assert data.range_tensor(3, shape=(2, 2)).take_batch()["data"][2].tolist() == [[2, 2], [2, 2]]


def test_what_is_held_cannot_be_written_to_through_a_batch():
    array = np.arange(10)
    (batch,) = batches(data.from_numpy(array))
    with pytest.raises(ValueError, match="read-only"):
        batch["data"][0] = 7
    assert array[0] == 0 and array.flags.writeable


def test_a_shuffle_buffer_mixes_and_loses_nothing():
    dataset = data.range(1000)
    mixed = [
        batch["id"]
        for batch in batches(dataset, batch_size=50, local_shuffle_buffer_size=200, local_shuffle_seed=1)
    ]
    again = [
        batch["id"]
        for batch in batches(dataset, batch_size=50, local_shuffle_buffer_size=200, local_shuffle_seed=1)
    ]
    assert [len(batch) for batch in mixed] == [50] * 20
    assert np.concatenate(mixed).tolist() == np.concatenate(again).tolist() != list(range(1000))
    assert sorted(np.concatenate(mixed)) == list(range(1000))
    with pytest.raises(ValueError, match="batch_size"):
        dataset.iter_batches(batch_size=None, local_shuffle_buffer_size=3)


def test_an_iterator_that_is_left_leaves_no_thread():
    before = threading.active_count()
    for _ in range(5):
        iterator = iter(data.range(10_000).iter_batches(prefetch_batches=3))
        next(iterator)
        iterator.close()
    join_readers()
    assert threading.active_count() == before


def test_what_a_step_raises_comes_out_of_the_loop():
    def fails(row):
        raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        batches(data.range(3).map(fails))


# -- steps


def test_steps_are_lazy_and_in_their_order():
    called = []

    def twice(batch):
        called.append(len(batch["id"]))
        return {"x": batch["id"] * 2}

    dataset = (
        data.range(10)
        .map_batches(twice, batch_size=4)
        .filter(lambda row: row["x"] > 10)
        .map(lambda row: {"y": row["x"] + 1})
    )
    assert called == []
    assert dataset.take_all() == [{"y": 13}, {"y": 15}, {"y": 17}, {"y": 19}]
    assert called == [4, 4, 2]


@pytest.mark.parametrize(
    "expression, kept",
    [
        ("id > 7", [8, 9]),
        ("2 <= id < 4 or id == 9", [2, 3, 9]),
        ("id in [1, 5] and not id == 5", [1]),
        ("id % 4 == 0", [0, 4, 8]),
        ("True", list(range(10))),
    ],
)
def test_expressions_filter(expression, kept):
    assert ids(data.range(10).filter(expr=expression)) == kept


@pytest.mark.parametrize(
    "expression", ["id.real", "__import__('os')", "id >", "[x for x in id]", "(lambda: 1)()"]
)
def test_expressions_are_nothing_else(expression):
    with pytest.raises(ValueError, match="`expr`="):
        data.range(10).filter(expr=expression)


def test_columns():
    dataset = data.from_items([{"a": 1, "b": 2, "c": 3}])
    assert dataset.select_columns(["c", "a"]).take_all() == [{"c": 3, "a": 1}]
    assert dataset.drop_columns(["a"]).take_all() == [{"b": 2, "c": 3}]
    assert dataset.rename_columns({"a": "z"}).take_all() == [{"z": 1, "b": 2, "c": 3}]
    assert dataset.rename_columns(["x", "y", "z"]).columns() == ["x", "y", "z"]
    assert dataset.add_column("d", lambda frame: frame["a"] + 4).take_all()[0]["d"] == 5
    for wrong in (dataset.select_columns(["q"]), dataset.drop_columns(["q"])):
        with pytest.raises(KeyError, match="'q'"):
            wrong.take()


class Adder:
    made = 0

    def __init__(self, more):
        Adder.made += 1
        self.more = more

    def __call__(self, batch, factor=1):
        return {"id": (batch["id"] + self.more) * factor}


def test_what_is_no_row_and_no_name():
    with pytest.raises(ValueError, match="dicts in a list, not <class 'int'>"):
        data.range(2).flat_map(lambda row: [1]).take()
    with pytest.raises(ValueError, match="a dict, not <class 'list'>"):
        data.range(2).map(lambda row: [row]).take()
    for names in ({}, [], {"id": 3}, [3]):
        with pytest.raises(ValueError, match="rename_columns requires names"):
            data.range(2).rename_columns(names)
    with pytest.raises(ValueError, match="duplicate values"):
        data.range(2).rename_columns({"a": "c", "b": "c"})
    with pytest.raises(KeyError, match="rename_columns: .*'nothing'.*'id'"):
        data.range(2).rename_columns({"nothing": "c"}).take()
    with pytest.raises(TypeError, match="List"):
        data.range(2).rename_columns("c")


def test_callable_classes_are_made_once():
    dataset = data.range(3000, override_num_blocks=5).map_batches(
        Adder, fn_constructor_args=(1,), fn_kwargs={"factor": 2}, concurrency=2
    )
    assert Adder.made == 0
    assert ids(dataset)[:3] == ids(dataset)[:3] == [2, 4, 6]
    assert Adder.made == 1
    with pytest.raises(ValueError, match="callable class"):
        data.range(1).map_batches(lambda batch: batch, fn_constructor_args=(1,))


def test_callable_classes_may_be_asynchronous():
    class Doubled:
        async def __call__(self, batch):
            self.loop = getattr(self, "loop", None) or asyncio.get_running_loop()
            assert asyncio.get_running_loop() is self.loop
            await asyncio.sleep(0)
            return {"id": batch["id"] * 2}

    class Twice:
        async def __call__(self, batch):
            for _ in range(2):
                yield batch

    dataset = data.range(4).map_batches(Doubled, batch_size=2).map_batches(Twice, batch_size=2)
    assert ids(dataset) == ids(dataset) == [0, 2, 0, 2, 4, 6, 4, 6]
    assert ids(data.range(2).map(Doubled)) == [0, 2]


def test_functions_on_batches_may_yield_and_are_checked():
    def thrice(batch):
        for _ in range(3):
            yield batch

    assert data.range(2).map_batches(thrice).count() == 6
    assert data.range(2).flat_map(lambda row: [row] * row["id"]).take_all() == [{"id": 1}]
    for wrong, text in (
        (lambda b: 3, "returned a value of type"),
        (lambda b: {"a": [1], "b": [1, 2]}, "same length"),
    ):
        with pytest.raises(ValueError, match=text):
            data.range(2).map_batches(wrong).take()
    with pytest.raises(ValueError, match="to return a dict"):
        data.range(2).map(lambda row: 3).take()
    with pytest.raises(TypeError, match="unexpected keyword argument 'batch_sise'"):
        data.range(2).map_batches(lambda batch: batch, batch_sise=3)


def test_sets_of_rows():
    dataset = data.range(10)
    assert [one.count() for one in dataset.split(3, equal=True)] == [3, 3, 3]
    assert sum((ids(one) for one in dataset.split(3)), []) == list(range(10))
    assert [ids(one) for one in dataset.split_at_indices([2, 5])] == [[0, 1], [2, 3, 4], [5, 6, 7, 8, 9]]
    assert [one.count() for one in dataset.split_proportionately([0.2, 0.5])] == [2, 5, 3]
    assert [one.count() for one in dataset.train_test_split(0.25)] == [7, 3]
    assert ids(dataset.limit(3)) == [0, 1, 2] and dataset.filter(expr="id > 4").limit(2).count() == 2
    assert ids(dataset.union(data.range(2))) == [*range(10), 0, 1]
    assert data.range(3).zip(data.range(3)).take(1) == [{"id": 0, "id_1": 0}]
    assert ids(dataset.sort("id", descending=True)) == list(range(10))[::-1]
    assert dataset.repartition(4).materialize().num_blocks() == 4
    with pytest.raises(ValueError, match="different number of rows: 3, 4"):
        data.range(3).zip(data.range(4)).take()


def test_sorting_by_two_columns():
    rows = [{"a": a, "b": b} for a, b in itertools.product((2, 1, 3), ("y", "x"))]
    found = data.from_items(rows).sort(["a", "b"], descending=[True, False]).take_all()
    assert found == sorted(rows, key=lambda row: (-row["a"], row["b"]))


@pytest.mark.parametrize("values", [[2, None, 1, 2], ["b", None, "a", "b"], [2.0, float("nan"), 1.0, 2.0]])
def test_rows_without_a_value_are_sorted_last(values):
    rows = data.from_items([{"x": value, "id": i} for i, value in enumerate(values)])
    assert ids(rows.sort("x")) == [2, 0, 3, 1]
    assert ids(rows.sort("x", descending=True)) == [0, 3, 2, 1]
    assert ids(rows.sort(["x", "id"], descending=[True, True])) == [3, 0, 2, 1]


def test_test_rows_are_never_training_rows():
    train, test = data.range(1000).random_shuffle().train_test_split(0.2)
    drawn, _ = data.range(1000).train_test_split(0.5, shuffle=True, seed=3)
    for _ in range(3):
        assert not set(ids(train)) & set(ids(test)) and len(ids(test)) == 200
    assert ids(drawn) == ids(drawn) != list(range(500))


def test_sums():
    dataset = data.range(5)
    assert (dataset.sum("id"), dataset.mean("id"), dataset.min("id"), dataset.max("id")) == (10, 2.0, 0, 4)
    assert dataset.std("id") == pytest.approx(1.58113883) and dataset.unique("id") == [0, 1, 2, 3, 4]


def test_what_is_not_provided_is_refused_by_name():
    for name in ("mix", "write_images", "join", "to_spark"):
        with pytest.raises(NotImplementedError, match=f"Dataset.{name} is not provided: "):
            getattr(data.range(1), name)
    with pytest.raises(NotImplementedError, match="DataIterator.to_tf is not provided: "):
        data.range(1).iterator().to_tf()
    assert not hasattr(data.range(1), "no_such_thing") and not hasattr(data.range(1).iterator(), "no_such_thing")


# -- orders


def test_an_order_is_drawn_anew_in_every_epoch():
    iterator = data.range(200).random_shuffle().iterator()
    first, second = ids(iterator), ids(iterator)
    assert first != second and sorted(first) == sorted(second) == list(range(200))
    fixed = data.range(200).random_shuffle(seed=7).iterator()
    assert ids(fixed) == ids(fixed) != list(range(200))
    again = data.range(200).random_shuffle(seed=data.RandomSeedConfig(7)).iterator()
    assert ids(again) != ids(again)
    kept = data.range(200).random_shuffle().materialize().iterator()
    assert ids(kept) == ids(kept)


def test_steps_before_an_order_are_still_taken():
    dataset = data.range(100, override_num_blocks=10).map(lambda row: {"x": row["id"] + 1}).random_shuffle()
    assert sorted(ids(dataset, "x")) == list(range(1, 101))
    batched = (
        data.range(100, override_num_blocks=10)
        .map_batches(lambda batch: {"x": batch["id"] + 1})
        .random_shuffle()
    )
    found = ids(batched, "x")
    assert sorted(found) == list(range(1, 101)) != found


# -- shards


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "dataset, rows",
    [
        (data.range(1001, override_num_blocks=13), range(1001)),
        (data.range(1001, override_num_blocks=13).filter(expr="id % 3 == 0"), range(0, 1001, 3)),
        (
            data.range(400).flat_map(lambda row: [row] * (row["id"] % 3)),
            [i for i in range(400) for _ in range(i % 3)],
        ),
        (data.range(500, override_num_blocks=9).map_batches(lambda batch: {"id": batch["id"][::2]}), None),
        (data.range(1001).random_shuffle(), range(1001)),
        (data.range(300).union(data.range(50).map(lambda row: {"id": row["id"] + 300})), range(350)),
        (data.range(3), range(3)),
        (data.range(0), ()),
    ],
)
def test_ranks_get_equal_rows_and_no_row_twice(dataset, rows, ranks):
    rows = list(rows) if rows is not None else ids(dataset)
    equal = [ids(one) for one in dataset.streaming_split(ranks, equal=True)]
    assert {len(one) for one in equal} == {len(rows) // ranks}
    for row in set(rows):
        assert sum(equal, []).count(row) <= rows.count(row)
    whole = sum((ids(one) for one in dataset.streaming_split(ranks)), [])
    assert sorted(whole) == sorted(rows)


def test_only_what_is_a_rank_s_own_is_read():
    read = []

    class Items:
        def __len__(self):
            return 100

        def __getitem__(self, number):
            read.append(number)
            return number

    second = data.from_torch(Items()).streaming_split(4, equal=True)[1]
    assert ids(second, "item") == list(range(25, 50)) == read


# -- going on


@pytest.mark.parametrize(
    "dataset",
    [
        data.range(1000).random_shuffle(),
        data.range(1000, override_num_blocks=7).filter(expr="id % 2 == 0"),
        data.range(1000).map_batches(lambda batch: {"id": batch["id"] * 3}),
    ],
)
@pytest.mark.parametrize("options", [{}, {"local_shuffle_buffer_size": 100}])
def test_an_epoch_is_gone_on_with(dataset, options):
    first, second = dataset.streaming_split(2, equal=True), dataset.streaming_split(2, equal=True)
    ids(first[1])
    running = iter(first[1].iter_batches(batch_size=20, **options))
    seen = [next(running)["id"].tolist() for _ in range(3)]
    state = first[1].state_dict()
    rest = [batch["id"].tolist() for batch in running]
    second[1].load_state_dict(state)
    assert [batch["id"].tolist() for batch in second[1].iter_batches(batch_size=20, **options)] == rest
    assert rest and seen
    assert ids(first[1]) == ids(second[1]), "the epoch after it is the same, too"


def test_an_epoch_is_gone_on_with_by_other_ranks():
    dataset = data.range(1200).random_shuffle()
    four = dataset.streaming_split(4, equal=True)
    seen = []
    for one in four:
        running = iter(one.iter_batches(batch_size=45))
        seen += [row for _ in range(2) for row in next(running)["id"].tolist()]
    state = four[0].state_dict()
    rest = []
    for one in dataset.streaming_split(3, equal=True):
        one.load_state_dict(state)
        running = iter(one.iter_batches(batch_size=40))
        rest += next(running)["id"].tolist()
        state_of_three = one.state_dict()
        list(running)
    assert not set(seen) & set(rest)
    last = []
    for one in dataset.streaming_split(2, equal=True):
        one.load_state_dict(state_of_three)
        last += ids(one)
    assert sorted(seen + rest + last) == list(range(1200))
    with pytest.raises(ValueError, match="state_dict"):
        four[0].load_state_dict({"epoch": 1})


def test_an_epoch_of_uneven_shards_is_gone_on_with():
    seen, state = [], None
    for count in (1, None):
        reached = state
        for one in data.range(11).streaming_split(3):
            if reached is not None:
                one.load_state_dict(reached)
            batches = itertools.islice(one.iter_batches(batch_size=2), count)
            seen += [row for batch in batches for row in batch["id"].tolist()]
            state = one.state_dict()
    assert sorted(seen) == list(range(11))


# -- tensors


def test_batches_of_tensors():
    import torch

    dataset = data.from_items([{"x": float(i), "y": i, "v": [1, 2]} for i in range(10)])
    batch = next(iter(dataset.iter_torch_batches(batch_size=4, dtypes={"x": torch.float32})))
    assert (
        batch["x"].dtype == torch.float32 and batch["y"].dtype == torch.int64 and batch["v"].shape == (4, 2)
    )
    summed = dataset.iter_torch_batches(
        batch_size=4, collate_fn=lambda batch: torch.as_tensor(batch["y"]).sum()
    )
    assert [one.item() for one in summed] == [6, 22, 17]
    features, label = next(iter(dataset.to_torch(label_column="y", feature_columns=["x"], batch_size=5)))
    assert features.shape == label.shape == (5, 1)
    with pytest.raises(RuntimeError, match="'s' holds"):
        next(iter(data.from_items([{"s": "text"}]).iter_torch_batches()))


def test_chunks_of_a_column_are_one_tensor():
    torch = pytest.importorskip("torch")

    class Table(tensors.ArrowBatchCollateFn):
        def __call__(self, table):
            assert isinstance(tensors.DefaultCollateFn()(table)["id"], list)
            return tensors.arrow_batch_to_tensors(table, dtypes=torch.float32)

    [batch] = data.range(3).iter_torch_batches(collate_fn=Table())
    assert torch.equal(batch["id"], torch.arange(3, dtype=torch.float32))
    chunks = [torch.zeros(1), torch.ones(2)]
    [pair] = data.range(1).iter_torch_batches(collate_fn=lambda _: (chunks, [torch.ones(1)]))
    assert isinstance(pair, tuple) and [one.tolist() for one in pair] == [[0, 1, 1], [1]]
    [each] = data.range(1).iter_torch_batches(collate_fn=lambda _: chunks)
    assert [one.tolist() for one in each] == [[0], [1, 1]]


def test_what_becomes_a_tensor_is_no_memory_of_the_data_set():
    array = np.zeros(10)
    for batch in data.from_numpy(array).iter_torch_batches():
        batch["data"] += 1
    assert not array.any()


def test_each_loop_over_a_data_set_is_an_epoch():
    shuffled = data.range(30).random_shuffle()
    first, second = ids(shuffled), np.concatenate([batch["id"] for batch in batches(shuffled)]).tolist()
    assert first != second and sorted(first) == sorted(second) == list(range(30))
    same = data.range(30).random_shuffle(seed=1)
    assert ids(same) == ids(same)
    again = data.RandomSeedConfig(seed=1, reseed_after_execution=True)
    assert ids(data.range(30).random_shuffle(seed=again)) == ids(data.range(30).random_shuffle(seed=again))
    drawn = data.range(30).random_shuffle(seed=again)
    assert ids(drawn) != ids(drawn)


@pytest.mark.parametrize("form", ["numpy", "pandas"])
def test_a_batch_that_is_asked_for_can_be_written_to(form):
    def add(batch):
        batch["data"] += 1
        return batch

    array = np.arange(4)
    held = data.from_numpy(array)
    written = held.map_batches(add, batch_format=form, zero_copy_batch=False)
    assert ids(written, "data") == [1, 2, 3, 4] and ids(held, "data") == [0, 1, 2, 3] == array.tolist()
    with pytest.raises(ValueError, match="read-only"):
        held.map_batches(add).materialize()


def test_words_that_are_no_strategy_and_no_column():
    with pytest.raises(ValueError, match="`compute` of map is a TaskPoolStrategy or an ActorPoolStrategy, not 'actors'"):
        data.range(3).map(lambda row: row, compute="actors")
    with pytest.raises(ValueError, match="the column 'x' is a str"):
        data.range(3).map_batches(lambda batch: {"x": "text"}).materialize()


def test_settings_have_their_defaults():
    context = data.DataContext()
    assert context.use_polars_sort is False and context.copy().read_op_min_num_blocks == 200
    context.use_polars_sort = True
    assert context.copy().use_polars_sort is True
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        context.nothing  # noqa: B018


# -- preprocessors


def test_scalers():
    dataset = data.from_items([{"x": float(i), "z": 5.0} for i in range(5)])
    scaled = preprocessors.StandardScaler(["x", "z"]).fit_transform(dataset).take_batch()
    assert (
        scaled["x"].mean() == pytest.approx(0)
        and scaled["x"].std() == pytest.approx(1)
        and not scaled["z"].any()
    )
    scaler = preprocessors.MinMaxScaler(["x"], output_columns=["y"]).fit(dataset)
    assert scaler.stats_ == {"min(x)": 0, "max(x)": 4}
    assert scaler.transform_batch({"x": np.array([2.0])}) == {"x": 2.0, "y": 0.5}
    with pytest.raises(preprocessors.PreprocessorNotFittedException, match="fit"):
        preprocessors.MinMaxScaler(["x"]).transform(dataset)
    same = preprocessors.Preprocessor.deserialize(scaler.serialize())
    assert same.stats_ == scaler.stats_


def test_encoders_and_chains():
    rows = [{"kind": kind, "x": x} for kind, x in zip("bacb", (1.0, None, 3.0, 2.0))]
    dataset = data.from_items(rows)
    chain = preprocessors.Chain(
        preprocessors.SimpleImputer(["x"]),
        preprocessors.OneHotEncoder(["kind"]),
        preprocessors.Concatenator(["kind", "x"], dtype=np.float32),
    )
    found = chain.fit_transform(dataset).take_batch()["concat_out"]
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 1, 0, 2]]
    labels = preprocessors.LabelEncoder("kind").fit(dataset)
    encoded = labels.transform(dataset)
    assert ids(encoded, "kind") == [1, 0, 2, 1]
    assert ids(labels.inverse_transform(encoded), "kind") == list("bacb")


def test_categories_stay_categories():
    pandas = pytest.importorskip("pandas")
    letters = [["A", "B", "A", None], ["Z", "B"]]
    frames = [pandas.DataFrame({"x": pandas.Series(column).astype("category")}) for column in letters]
    whole = data.from_pandas(frames)
    for one in (whole, whole.materialize(), whole.repartition(1), whole.map_batches(lambda batch: batch, batch_format="pandas")):
        frame = one.to_pandas()
        assert frame["x"].dtype == "category" and frame["x"].cat.codes.nunique() == 4
        assert [value if value == value else None for value in frame["x"]] == letters[0] + letters[1]
    assert [row["x"] for row in whole.iter_rows()] == letters[0] + letters[1]
    assert next(iter(whole.iter_batches(batch_size=6)))["x"].tolist() == letters[0] + letters[1]
    mixed = data.from_pandas([frames[1], pandas.DataFrame({"x": ["plain"]})])
    assert mixed.to_pandas()["x"].tolist() == ["Z", "B", "plain"]


def test_a_preprocessor_of_the_user_s_own():
    class Doubled(preprocessors.Preprocessor):
        _is_fittable = False

        def _transform_pandas(self, frame):
            frame["id"] *= 2
            return frame

    assert ids(Doubled().transform(data.range(3))) == [0, 2, 4]


def test_missing_values_are_left_out_of_sums():
    rows = data.from_items([{"x": x, "s": s} for x, s in ((1, "a"), (None, None), (3, "b"), (1, "a"))])
    assert (rows.sum("x"), rows.min("s"), rows.max("s"), rows.mean("x")) == (5, "a", "b", 5 / 3)
    assert rows.sum("x", ignore_nulls=False) is None and rows.filter(lambda row: False).max("x") is None
    assert rows.unique("s") == ["a", "b", None] and rows.unique("s", ignore_nulls=True) == ["a", "b"]


def test_what_a_data_set_says_of_itself():
    dataset = data.range(5).map(lambda row: row)
    assert repr(dataset) == "Map(<lambda>)\n+- Dataset(num_rows=5, schema={id: int64})"
    both = dataset.union(data.range(2))
    assert repr(both).splitlines() == [
        "Union",
        "+- Map(<lambda>)",
        "   +- Dataset(num_rows=5, schema={id: int64})",
        "+- Dataset(num_rows=2, schema={id: int64})",
    ]
    assert repr(dataset.materialize()) == "MaterializedDataset(num_blocks=1, num_rows=5, schema={id: int64})"
    assert dataset.columns(fetch_if_missing=False) is None and dataset.columns() == ["id"]


def test_a_large_range_is_never_held_as_a_whole():
    first = data.range(1 << 30).random_shuffle(seed=1).take(1)[0]["id"]
    assert 0 <= first < 1 << 30


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda rows: rows.limit("x"), "`limit` must be a whole number, 0 or more, not 'x'"),
        (lambda rows: rows.take("x"), "`limit` must be a whole number, not 'x'"),
        (lambda rows: rows.take_batch(0), "`batch_size` must be a whole number, 1 or more, not 0"),
        (lambda rows: rows.split("x"), "`n` must be a whole number, not 'x'"),
        (lambda rows: rows.repartition("x"), "`num_blocks` must be a whole number, 1 or more, not 'x'"),
        (lambda rows: rows.union(3), "`union` takes data sets, not builtins.int"),
        (lambda rows: rows.zip([1]), "`zip` takes data sets, not builtins.list"),
        (lambda rows: next(iter(rows.iter_batches(prefetch_batches="x"))), "`prefetch_batches` must be a whole number"),
    ],
)
def test_what_no_step_can_be_told(call, words):
    with pytest.raises(ValueError, match=words):
        call(data.range(3))
