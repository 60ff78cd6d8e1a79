"""Where each name of Ray is found in Trainyard: the whole of what `as_ray` offers, as one table.

A module maps sources to names. A source is the Trainyard module that has the name, or ABSENT for a name that is there to be
imported only (absent.py). What a module does not list is an AttributeError, as a misspelt name should be. Modules of
ABSENT_MODULES, and all below them, have every name, none of which can be used.
"""

from __future__ import annotations

ABSENT = "absent"
HERE = "trainyard.as_ray"

_CONFIGS = "ScalingConfig RunConfig FailureConfig CheckpointConfig"
_ERRORS = "TrainingFailedError WorkerGroupError ControllerError"
_FUNCTIONS = "report get_checkpoint get_context get_all_reported_checkpoints"
_TORCH_DEVICES = "get_device get_devices"
_TORCH_LOOP = "prepare_model prepare_data_loader enable_reproducibility accelerate prepare_optimizer backward"
_REPORTED = "ReportedCheckpoint ReportedCheckpointStatus"
_MODES = "CheckpointUploadMode CheckpointConsistencyMode"
_VALIDATION = "ValidationConfig ValidationTaskConfig ValidationFn"
_DATA = "trainyard.data"
_DATASETS = "Dataset MaterializedDataset Schema DataIterator"
_DATA_OPTIONS = (
    "ActorPoolStrategy DataContext ExecutionOptions ExecutionResources FileShuffleConfig RandomSeedConfig TaskPoolStrategy"
)
_DATA_READ = (
    "from_arrow from_blocks from_huggingface from_items from_numpy from_pandas from_torch range range_tensor read_binary_files "
    "read_csv read_images read_json read_numpy read_parquet read_text"
)
_DATA_ABSENT = (
    "BlockBasedFileDatasink Catalog CatalogAccessMode ClickHouseTableSettings DatabricksUnityCatalog DatasetSummary Datasink "
    "Datasource KafkaAuthConfig MixStoppingCondition NodeIdStr ReadTask ReaderFormat ResolvedSource RowBasedFileDatasink "
    "SinkMode from_arrow_refs from_daft from_dask from_mars from_modin from_numpy_refs "
    "from_pandas_refs from_spark from_tf list_stats_summaries llm read_audio read_avro read_bigquery read_clickhouse "
    "read_databricks_tables read_datasource read_delta read_delta_sharing_tables read_hudi read_iceberg read_kafka read_lance "
    "read_lerobot read_mcap read_mongo read_orc read_snowflake read_sql read_tfrecords read_unity_catalog read_videos "
    "read_webdataset read_zarr"
)
_DATASOURCES = (
    "BlockBasedFileDatasink Datasink Datasource FileBasedDatasource ReadTask Reader RowBasedFileDatasink WriteResult"
)
_METADATA_PROVIDERS = (
    "BaseFileMetadataProvider DefaultFileMetadataProvider DefaultParquetMetadataProvider FastFileMetadataProvider "
    "FileMetadataProvider ParquetMetadataProvider"
)
_PARTITIONING = "PartitionStyle Partitioning PathPartitionEncoder PathPartitionFilter PathPartitionParser"
_DATA_AGGREGATES = (
    "AbsMax AggregateFn AggregateFnV2 ApproximateQuantile ApproximateTopK AsList Count CountDistinct Max Mean Min "
    "MissingValuePercentage Quantile Std Sum Unique ZeroPercentage"
)
_EXPRESSIONS = (
    "AliasExpr BinaryExpr ColumnExpr Expr LiteralExpr RandomExpr UDFExpr UUIDExpr UnaryExpr col lit pyarrow_udf random udf uuid"
)
_COLLATE = "ArrowBatchCollateFn NumpyBatchCollateFn PandasBatchCollateFn"
_PREPROCESSORS = (
    "BatchMapper Categorizer Chain Concatenator CountVectorizer CustomKBinsDiscretizer FeatureHasher HashingVectorizer "
    "LabelEncoder MaxAbsScaler MinMaxScaler MultiHotEncoder Normalizer "
    "OneHotEncoder OrdinalEncoder PowerTransformer RobustScaler SimpleImputer StandardScaler Tokenizer TorchVisionPreprocessor "
    "UniformKBinsDiscretizer"
)
_LIGHTNING = "RayDDPStrategy RayFSDPStrategy RayDeepSpeedStrategy RayLightningEnvironment RayTrainReportCallback prepare_trainer"
_TRANSFORMERS = "RayTrainReportCallback prepare_trainer"

_XGBOOST = "RayTrainReportCallback XGBoostCheckpoint XGBoostConfig XGBoostTrainer"
_LIGHTGBM = (
    "LightGBMCheckpoint LightGBMConfig LightGBMTrainer RayTrainReportCallback get_network_params normalize_pandas_for_lightgbm"
)
_TENSORFLOW = "TensorflowCheckpoint TensorflowConfig TensorflowTrainer prepare_dataset_shard"
_TABLE: dict[str, dict[str, str]] = {
    "ray": {
        f"{HERE}.session": "init shutdown is_initialized __version__ LOCAL_MODE SCRIPT_MODE WORKER_MODE LoggingConfig logger get",
        f"{HERE}.cluster": "cluster_resources available_resources nodes",
        f"{HERE}.context": "get_gpu_ids get_runtime_context",
        ABSENT: "remote put wait kill cancel method get_actor timeline client ObjectRef ObjectRefGenerator ActorClassID ActorID "
        "DynamicObjectRefGenerator FunctionID ObjectID ClientBuilder JobID NodeID TaskID WorkerID UniqueID PlacementGroupID "
        "Language cpp_function java_function java_actor_class",
    },
    "ray.cloudpickle": {
        "cloudpickle": "CloudPickler Pickler dump dumps load loads register_pickle_by_value unregister_pickle_by_value"
    },
    "ray.cluster_utils": {f"{HERE}.cluster": "Cluster", ABSENT: "AutoscalingCluster"},
    "ray.exceptions": {f"{HERE}.exceptions": "*"},
    "ray.runtime_context": {f"{HERE}.context": "RuntimeContext get_runtime_context"},
    "ray.runtime_env": {f"{HERE}.runtime_env": "RuntimeEnv RuntimeEnvConfig"},
    "ray.util": {
        f"{HERE}.context": "get_node_ip_address log_once",
        ABSENT: "ActorPool as_completed collective connect disconnect get_current_placement_group get_placement_group "
        "inspect_serializability iter list_named_actors map_unordered pdb placement_group placement_group_table "
        "register_serializer deregister_serializer remove_placement_group",
    },
    "ray.util.accelerators": {f"{HERE}.accelerators": "*"},
    "ray.util.annotations": {f"{HERE}.annotations": "*"},
    "ray.data": {
        _DATA: f"{_DATASETS} {_DATA_OPTIONS} {_DATA_READ}",
        f"{_DATA}.tensors": _COLLATE,
        f"{_DATA}.preprocessors": "Preprocessor",
        f"{_DATA}.writing": "SaveMode",
        ABSENT: _DATA_ABSENT,
    },
    "ray.data.aggregate": {f"{_DATA}.aggregate": _DATA_AGGREGATES, ABSENT: "ValueCounter VectorizedAggregateFnV2"},
    "ray.data.block": {f"{_DATA}.block": "Block"},
    "ray.data.collate_fn": {f"{_DATA}.tensors": f"{_COLLATE} DefaultCollateFn CollateFn"},
    "ray.data.context": {
        _DATA: "DataContext",
        ABSENT: "AutoscalingConfig DeltaConfig IcebergConfig LanceConfig ShuffleStrategy",
    },
    "ray.data.dataset": {_DATA: "Dataset MaterializedDataset Schema"},
    "ray.data.datasource": {
        f"{_DATA}.writing": "FilenameProvider",
        f"{_DATA}.config": "FileShuffleConfig",
        ABSENT: f"{_DATASOURCES} {_METADATA_PROVIDERS} {_PARTITIONING}",
    },
    "ray.data.datasource.filename_provider": {f"{_DATA}.writing": "FilenameProvider"},
    "ray.data.datatype": {f"{_DATA}.datatype": "DataType"},
    "ray.data.exceptions": {f"{HERE}.exceptions": "UserCodeException"},
    "ray.data.expressions": {
        f"{_DATA}.expression": _EXPRESSIONS,
        f"{_DATA}.operations": "Operation",
        ABSENT: "DownloadExpr MonotonicallyIncreasingIdExpr PyArrowComputeUDFExpr StarExpr UnnestExpr download "
        "monotonically_increasing_id star unnest",
    },
    "ray.data.grouped_data": {f"{_DATA}.grouped": "GroupedData"},
    "ray.data.iterator": {_DATA: "DataIterator"},
    "ray.data.util": {},
    "ray.data.util.torch_utils": {
        f"{_DATA}.tensors": "arrow_batch_to_tensors",
        ABSENT: "concat_tensors_to_device convert_ndarray_batch_to_torch_tensor_batch convert_ndarray_list_to_torch_tensor_list "
        "convert_ndarray_to_torch_tensor convert_table_to_torch_tensor convert_tensors_to_numpy move_tensors_to_device "
        "pin_tensors_to_memory",
    },
    "ray.data.preprocessor": {f"{_DATA}.preprocessors": "Preprocessor PreprocessorNotFittedException SerializablePreprocessorBase"},
    "ray.data.preprocessors": {f"{_DATA}.preprocessors": _PREPROCESSORS},
    # Ray Train
    "ray.train": {
        "trainyard": f"{_CONFIGS} {_ERRORS} {_FUNCTIONS} BackendConfig Checkpoint Result UserCallback",
        "trainyard.reported": f"{_MODES} {_REPORTED}",
        f"{HERE}.train": "TrainContext LoggingConfig SyncConfig TRAIN_DATASET_KEY get_preemption_info "
        "NCCLHangError PreemptionError PreemptionInfo",
        "trainyard.context": "get_dataset_shard",
        "trainyard.data": "DataConfig",
        "trainyard.validation": _VALIDATION,
        ABSENT: "MLflowLoggerCallback",
    },
    "ray.train._checkpoint": {"trainyard": "Checkpoint"},
    "ray.train.backend": {"trainyard": "BackendConfig", "trainyard.backend": "Backend", ABSENT: "BaseWorkerGroup"},
    "ray.train.base_trainer": {"trainyard": "TrainingFailedError", ABSENT: "BaseTrainer GenDataset"},
    "ray.train.collective": {"trainyard.collective": "barrier broadcast_from_rank_zero"},
    "ray.train.constants": {f"{HERE}.train_constants": "* is_v2_enabled"},
    "ray.train.context": {"trainyard": "get_context", f"{HERE}.train": "TrainContext"},
    "ray.train.data_parallel_trainer": {"trainyard": "DataParallelTrainer"},
    "ray.train.error": {f"{HERE}.train": "SessionMisuseError"},
    "ray.train.session": {"trainyard": "report get_checkpoint", "trainyard.context": "get_dataset_shard"},
    "ray.train.torch": {
        "trainyard.torch": f"TorchTrainer TorchConfig {_TORCH_DEVICES} {_TORCH_LOOP}",
        f"{HERE}.torch_checkpoint": "TorchCheckpoint TorchPredictor",
        ABSENT: "TorchDetectionPredictor TorchftConfig",
    },
    "ray.train.torch.torch_checkpoint": {f"{HERE}.torch_checkpoint": "TorchCheckpoint"},
    "ray.train.torch.torch_predictor": {f"{HERE}.torch_checkpoint": "TorchPredictor"},
    "ray.train.torch.config": {"trainyard.torch": "TorchConfig", ABSENT: "TorchftConfig"},
    "ray.train.torch.torch_trainer": {"trainyard.torch": "TorchTrainer"},
    "ray.train.torch.train_loop_utils": {"trainyard.torch": f"{_TORCH_DEVICES} {_TORCH_LOOP}", ABSENT: "TorchWorkerProfiler"},
    "ray.train.trainer": {"trainyard": "TrainingFailedError", ABSENT: "BaseTrainer GenDataset TrainingIterator"},
    "ray.train.utils": {f"{HERE}.annotations": "RayDeprecationWarning"},
    "ray.train.jax": {"trainyard.jax": "JaxTrainer JaxConfig"},
    "ray.train.lightning": {f"{HERE}.lightning": _LIGHTNING},
    "ray.train.lightning._lightning_utils": {f"{HERE}.lightning": f"{_LIGHTNING} import_lightning"},
    "ray.train.xgboost": {f"{HERE}.xgboost": _XGBOOST, ABSENT: "XGBoostPredictor"},
    "ray.train.xgboost.config": {f"{HERE}.xgboost": "XGBoostConfig"},
    "ray.train.xgboost.xgboost_checkpoint": {f"{HERE}.xgboost": "XGBoostCheckpoint"},
    "ray.train.xgboost.xgboost_trainer": {f"{HERE}.xgboost": "XGBoostTrainer"},
    "ray.train.lightgbm": {f"{HERE}.lightgbm": _LIGHTGBM, ABSENT: "LightGBMPredictor"},
    "ray.train.lightgbm.config": {f"{HERE}.lightgbm": "LightGBMConfig get_network_params"},
    "ray.train.lightgbm.lightgbm_checkpoint": {f"{HERE}.lightgbm": "LightGBMCheckpoint"},
    "ray.train.lightgbm.lightgbm_trainer": {f"{HERE}.lightgbm": "LightGBMTrainer"},
    "ray.train.tensorflow": {f"{HERE}.tensorflow": _TENSORFLOW, ABSENT: "TensorflowPredictor"},
    "ray.train.tensorflow.config": {f"{HERE}.tensorflow": "TensorflowConfig"},
    "ray.train.tensorflow.keras": {f"{HERE}.keras": "ReportCheckpointCallback"},
    "ray.train.tensorflow.tensorflow_checkpoint": {f"{HERE}.tensorflow": "TensorflowCheckpoint"},
    "ray.train.tensorflow.tensorflow_trainer": {f"{HERE}.tensorflow": "TensorflowTrainer"},
    "ray.train.tensorflow.train_loop_utils": {f"{HERE}.tensorflow": "prepare_dataset_shard"},
    "ray.train.huggingface": {ABSENT: "AccelerateTrainer TransformersTrainer"},
    "ray.train.huggingface.transformers": {f"{HERE}.transformers": _TRANSFORMERS},
    "ray.train.huggingface.transformers._transformers_utils": {f"{HERE}.transformers": _TRANSFORMERS},
    # Ray Train 2, under the names that its parts have inside
    "ray.train.v2": {},
    "ray.train.v2.api": {},
    "ray.train.v2.api.callback": {"trainyard.callbacks": "RayTrainCallback UserCallback"},
    "ray.train.v2.api.config": {"trainyard": _CONFIGS, f"{HERE}.train": "LoggingConfig"},
    "ray.train.v2.api.context": {"trainyard.context": "TrainContext LocalTrainContext DistributedTrainContext"},
    "ray.train.v2.api.data_parallel_trainer": {"trainyard": "DataParallelTrainer"},
    "ray.train.v2.api.exceptions": {
        "trainyard": _ERRORS,
        f"{HERE}.train": "NCCLHangError PreemptionError",
    },
    "ray.train.v2.api.preemption": {f"{HERE}.train": "PreemptionInfo get_preemption_info"},
    "ray.train.v2.api.report_config": {"trainyard.reported": _MODES},
    "ray.train.v2.api.reported_checkpoint": {"trainyard.reported": _REPORTED},
    "ray.train.v2.api.result": {"trainyard": "Result"},
    "ray.train.v2.api.train_fn_utils": {
        "trainyard": _FUNCTIONS,
        "trainyard.context": "get_dataset_shard",
        f"{HERE}.train": "get_preemption_info",
    },
    "ray.train.v2.api.validation_config": {"trainyard.validation": _VALIDATION},
    "ray.train.v2.jax": {"trainyard.jax": "JaxTrainer JaxConfig"},
    "ray.train.v2.jax.config": {"trainyard.jax": "JaxConfig"},
    "ray.train.v2.jax.jax_trainer": {"trainyard.jax": "JaxTrainer"},
    "ray.train.v2.torch": {},
    "ray.train.v2.torch.torch_trainer": {"trainyard.torch": "TorchTrainer"},
    "ray.train.v2.torch.train_loop_utils": {"trainyard.torch": f"{_TORCH_DEVICES} {_TORCH_LOOP}"},
    "ray.train.v2.xgboost": {},
    "ray.train.v2.xgboost.xgboost_trainer": {f"{HERE}.xgboost": "XGBoostTrainer"},
    "ray.train.v2.xgboost.config": {f"{HERE}.xgboost": "XGBoostConfig"},
    "ray.train.v2.lightgbm": {},
    "ray.train.v2.lightgbm.lightgbm_trainer": {f"{HERE}.lightgbm": "LightGBMTrainer"},
    "ray.train.v2.tensorflow": {},
    "ray.train.v2.tensorflow.tensorflow_trainer": {f"{HERE}.tensorflow": "TensorflowTrainer"},
    "ray.train.v2._internal": {},
    "ray.train.v2._internal.constants": {f"{HERE}.train_constants": "* is_v2_enabled"},
    # AIR: the first Ray Train
    "ray.air": {
        "trainyard": f"{_CONFIGS} Checkpoint Result",
        ABSENT: "AcquiredResources DataBatchType ResourceRequest",
    },
    "ray.air.checkpoint": {"trainyard": "Checkpoint"},
    "ray.air.config": {"trainyard": _CONFIGS, ABSENT: "DatasetConfig"},
    "ray.air.constants": {f"{HERE}.train_constants": "* is_v2_enabled"},
    "ray.air.result": {"trainyard": "Result"},
    "ray.air.session": {
        "trainyard": "report get_checkpoint",
        "trainyard.context": "get_dataset_shard",
        f"{HERE}.train": "get_experiment_name get_world_rank get_world_size get_local_rank "
        "get_local_world_size get_node_rank get_metadata get_trial_name get_trial_id get_trial_resources get_trial_dir",
    },
}

# Sources that wrap a package: their names are ABSENT where none of these is installed.
NEEDS = {
    f"{HERE}.lightning": ("lightning", "pytorch_lightning"),
    f"{HERE}.transformers": ("transformers",),
    f"{HERE}.xgboost": ("xgboost",),
    f"{HERE}.lightgbm": ("lightgbm",),
    f"{HERE}.tensorflow": ("tensorflow",),
    f"{HERE}.keras": ("tensorflow",),
}

# There in name only, and so is all below them.
ABSENT_MODULES = (
    *(
        f"ray.{name}"
        for name in (
            "actor autoscaler client_builder dag data.llm data.util.torch_inference experimental internal job_submission llm"
        ).split()
    ),
    *(
        f"ray.{name}"
        for name in "remote_function rllib serve tests tune types widgets workflow _common _private _raylet".split()
    ),
    *(f"ray.data.datasource.{name}" for name in "datasink datasource file_meta_provider partitioning path_util".split()),
    *(f"ray.air.{name}" for name in "integrations execution util data_batch_type _internal".split()),
    *(
        f"ray.train.{name}"
        for name in "_internal batch_predictor examples horovod predictor sklearn".split()
    ),
    *(f"ray.train.{name}" for name in "tests torch.xla".split()),
    *(f"ray.train.v2.{name}" for name in "horovod tests torch.torchft_config".split()),
    *(
        f"ray.util.{name}"
        for name in "actor_group actor_pool client collective dask debug helpers joblib".split()
    ),
    *(
        f"ray.util.{name}"
        for name in "metrics multiprocessing placement_group queue scheduling_strategies spark".split()
    ),
    *(f"ray.util.{name}" for name in "serialization state timer tpu tracing".split()),
)


def _homes(sources: dict[str, str]) -> dict[str, str]:
    return {name: source for source, names in sources.items() for name in names.split()}


# Module -> name -> source. The name "*" stands for all names of its source.
MODULES = {module: _homes(sources) for module, sources in _TABLE.items()}
