"""Preprocessors: fitted once to a data set, in the driver, then a step of any other."""

from .base import BatchMapper as BatchMapper
from .base import Chain as Chain
from .base import Preprocessor as Preprocessor
from .base import PreprocessorNotFittedException as PreprocessorNotFittedException
from .base import SerializablePreprocessor as SerializablePreprocessor
from .base import SerializablePreprocessorBase as SerializablePreprocessorBase
from .bins import CustomKBinsDiscretizer as CustomKBinsDiscretizer
from .bins import UniformKBinsDiscretizer as UniformKBinsDiscretizer
from .columns import Concatenator as Concatenator
from .columns import Normalizer as Normalizer
from .columns import PowerTransformer as PowerTransformer
from .columns import SimpleImputer as SimpleImputer
from .columns import Tokenizer as Tokenizer
from .columns import TorchVisionPreprocessor as TorchVisionPreprocessor
from .encoders import Categorizer as Categorizer
from .encoders import LabelEncoder as LabelEncoder
from .encoders import MultiHotEncoder as MultiHotEncoder
from .encoders import OneHotEncoder as OneHotEncoder
from .encoders import OrdinalEncoder as OrdinalEncoder
from .scalers import MaxAbsScaler as MaxAbsScaler
from .scalers import MinMaxScaler as MinMaxScaler
from .scalers import RobustScaler as RobustScaler
from .scalers import StandardScaler as StandardScaler
from .words import CountVectorizer as CountVectorizer
from .words import FeatureHasher as FeatureHasher
from .words import HashingVectorizer as HashingVectorizer
