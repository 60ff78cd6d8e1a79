"""Methods of Ray's data sets, iterators and groups that there are none of, and what to do instead."""

from __future__ import annotations

_READ = "give its rows to the other library by to_pandas(), take_all() or iter_batches()"
_WRITE = "use write_parquet, write_csv, write_json, write_numpy, or to_pandas() and the library that writes it"
_GROUP = "use groupby, or to_pandas() and what pandas has"
_LINEAGE = "pickle the data set itself"
_ADVICE = {
    "join summary": _GROUP,
    "get_internal_block_refs iter_internal_ref_bundles to_arrow_refs to_numpy_refs to_pandas_refs": "there is no object store",
    "deserialize_lineage has_serializable_lineage serialize_lineage": _LINEAGE,
    "iter_tf_batches to_tf": "it needs the package tensorflow, which is not installed; iter_batches gives arrays",
    "mix": "use union and random_shuffle",
    "streaming_train_test_split": "use train_test_split",
    "to_daft to_dask to_mars to_modin to_random_access_dataset to_spark": _READ,
    "write_avro write_bigquery write_clickhouse write_databricks write_datasink write_delta write_iceberg write_images "
    "write_kafka write_lance write_mongo write_orc write_snowflake write_sql write_tfrecords "
    "write_turbopuffer write_webdataset": _WRITE,
}
_OF_EACH = {name: advice for names, advice in _ADVICE.items() for name in names.split()}
_OF_OTHERS = {
    "DataIterator": {name: _OF_EACH[name] for name in ("iter_tf_batches", "to_tf")},
    "GroupedData": {"with_column": "use aggregate or map_groups, and with_column of what they give"},
}


def refuse(name: str, kind: str = "Dataset") -> None:
    """NotImplementedError for a method that is known to be missing."""
    known = _OF_OTHERS.get(kind, _OF_EACH)
    if name in known:
        raise NotImplementedError(f"{kind}.{name} is not provided: {known[name]}")
