"""Preprocessors: categories, words as vectors, what they say of missing values, and what all of them have."""

import collections
import warnings

import numpy as np
import pytest
from trainyard import data
from trainyard.data import preprocessors

pytest.importorskip("pyarrow")


def column(dataset, name):
    return [row[name] if not hasattr(row[name], "tolist") else row[name].tolist() for row in dataset.take_all()]


@pytest.fixture
def texts():
    return data.from_items([{"a": "x y y z z z"}, {"a": "x x x x z"}, {"a": None}])


def test_words_are_counted(texts):
    vectorizer = preprocessors.CountVectorizer(["a"], output_columns=["n"]).fit(texts)
    assert vectorizer.stats_ == {"token_counts(a)": collections.Counter({"x": 5, "z": 4, "y": 2})}
    made = vectorizer.transform(texts)
    assert column(made, "n") == [[1, 3, 2], [4, 1, 0], [0, 0, 0]] and column(made, "a")[0] == "x y y z z z"
    most = preprocessors.CountVectorizer(["a"], max_features=2).fit(texts)
    assert column(most.transform(texts), "a") == [[1, 3], [4, 1], [0, 0]]
    letters = preprocessors.CountVectorizer(["a"], tokenization_fn=list, max_features=1).fit(texts)
    assert letters.stats_ == {"token_counts(a)": collections.Counter({" ": 9})}


def test_words_have_places_by_their_hash(texts):
    vectorizer = preprocessors.HashingVectorizer(["a"], num_features=3)
    texts = data.from_items([{"a": "a b b c c c"}, {"a": "apple"}, {"a": "banana banana"}])
    assert column(vectorizer.transform(texts), "a") == [[0, 4, 2], [0, 0, 1], [2, 0, 0]]
    counts = data.from_items([{"I": 1, "like": 1, "dislike": 0}, {"I": 2, "like": 0, "dislike": 3}])
    hashed = column(preprocessors.FeatureHasher(["I", "like", "dislike"], 256, "h").transform(counts), "h")
    assert [sorted(filter(None, row)) for row in hashed] == [[1, 1], [2, 3]] and len(hashed[0]) == 256


def test_columns_of_categories():
    pandas = pytest.importorskip("pandas")
    dataset = data.from_items([{"s": "b", "n": 3}, {"s": "a", "n": 1}, {"s": None, "n": 3}])
    given = pandas.CategoricalDtype(["b", "a", "c"], ordered=True)
    categorizer = preprocessors.Categorizer(["s", "n"], dtypes={"s": given}).fit(dataset)
    assert categorizer.stats_ == {"s": given, "n": pandas.CategoricalDtype([1, 3])}
    frame = categorizer.transform(dataset).to_pandas()
    assert frame.dtypes["s"] == given and list(frame["n"].cat.categories) == [1, 3]
    assert frame["s"].cat.codes.tolist() == [0, 1, -1]


def test_of_a_list_the_number_of_each_class():
    dataset = data.from_items([{"x": ["b", "a"]}, {"x": []}, {"x": ["c"]}])
    encoder = preprocessors.OrdinalEncoder(["x"]).fit(dataset)
    assert encoder.stats_ == {"unique_values(x)": {"a": 0, "b": 1, "c": 2}}
    assert [list(one) for one in column(encoder.transform(dataset), "x")] == [[1, 0], [], [2]]
    whole = preprocessors.OrdinalEncoder(["x"], encode_lists=False).fit(dataset)
    assert column(whole.transform(dataset), "x") == [1, 0, 2]


@pytest.mark.parametrize("name", ["OrdinalEncoder", "OneHotEncoder"])
def test_encoders_have_no_class_for_what_is_missing(name):
    some, whole = data.from_items([{"a": 1}, {"a": None}]), data.from_items([{"a": 1}, {"a": 1}])
    encoder = getattr(preprocessors, name)(["a"])
    with pytest.raises(ValueError, match=f"{name}: the column 'a' has missing values"):
        encoder.fit(some)
    encoder.fit(whole)
    with pytest.raises(ValueError, match="has missing values"):
        encoder.transform(some).materialize()
    assert len(encoder.transform(whole).take_all()) == 2


def test_nearly_one_value_is_one_and_none_gives_none():
    dataset = data.from_items([{"x": 1.0, "gone": None}, {"x": 1.0 + 1e-10, "gone": None}])
    for name in ("StandardScaler", "MinMaxScaler"):
        made = getattr(preprocessors, name)(["x", "gone"]).fit(dataset)
        assert None in made.stats_.values()
        batch = made.transform(dataset).take_batch()
        assert np.allclose(batch["x"], 0, atol=1e-6) and np.isnan(batch["gone"]).all()


def test_what_there_is_nothing_to_fill_in_of():
    imputer = preprocessors.SimpleImputer(["x"])
    imputer.fit(data.from_items([{"x": None}, {"x": None}]))
    with pytest.raises(ValueError, match="column 'x' had no values when it was fitted"):
        imputer.transform_batch({"x": np.array([np.nan])})
    imputer.fit(data.from_items([{"x": 3.0}, {"x": None}]))
    assert imputer.transform_batch({"y": np.array([1, 2])})["x"].tolist() == [3.0, 3.0]


def test_what_all_of_them_have():
    dataset = data.from_items([{"x": 1.0}, {"x": 2.0}])
    scaler = preprocessors.StandardScaler(["x"], output_columns=["y"])
    assert (scaler.get_input_columns(), scaler.get_output_columns()) == (["x"], ["y"])
    assert preprocessors.LabelEncoder("x").get_output_columns() == ["x"]
    assert preprocessors.Concatenator(["x"]).get_output_columns() == ["concat_out"]
    assert preprocessors.BatchMapper(len).get_input_columns() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.fit(dataset)
    with pytest.warns(UserWarning, match="`fit` has already been called on the preprocessor"):
        scaler.fit(dataset)
    kept = scaler.serialize()
    assert kept.startswith(b"CPKL:") and preprocessors.Preprocessor.deserialize(kept).stats_ == scaler.stats_
    with pytest.raises(ValueError, match="The length of columns and output_columns must match"):
        preprocessors.Normalizer(["x", "y"], output_columns=["z"])


def test_one_without_a_transform():
    class Nothing(preprocessors.Preprocessor):
        _is_fittable = False

    with pytest.raises(NotImplementedError, match="Nothing has neither"):
        Nothing().transform(data.range(2))
