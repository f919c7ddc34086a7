"""torch.nn. Written by `python -m tools.stubs`."""

from flambeau._lazy import submodules as submodules
from flambeau.core.tensor import Tensor as _Tensor
from flambeau.fx.graph_module import set_module_base as set_module_base
from flambeau.nn import attention as attention
from flambeau.nn import branches as branches
from flambeau.nn import common_types as common_types
from flambeau.nn import functional as functional
from flambeau.nn import grad as grad
from flambeau.nn import init as init
from flambeau.nn import modules as modules
from flambeau.nn import packing as packing
from flambeau.nn import parallel as parallel
from flambeau.nn import parameter as parameter
from flambeau.nn import scaled as scaled
from flambeau.nn import utils as utils
from flambeau.nn.modules.activation import CELU as CELU
from flambeau.nn.modules.activation import ELU as ELU
from flambeau.nn.modules.activation import GELU as GELU
from flambeau.nn.modules.activation import GLU as GLU
from flambeau.nn.modules.activation import Hardshrink as Hardshrink
from flambeau.nn.modules.activation import Hardsigmoid as Hardsigmoid
from flambeau.nn.modules.activation import Hardswish as Hardswish
from flambeau.nn.modules.activation import Hardtanh as Hardtanh
from flambeau.nn.modules.activation import LeakyReLU as LeakyReLU
from flambeau.nn.modules.activation import LogSigmoid as LogSigmoid
from flambeau.nn.modules.activation import LogSoftmax as LogSoftmax
from flambeau.nn.modules.activation import Mish as Mish
from flambeau.nn.modules.activation import MultiheadAttention as MultiheadAttention
from flambeau.nn.modules.activation import PReLU as PReLU
from flambeau.nn.modules.activation import RReLU as RReLU
from flambeau.nn.modules.activation import ReLU as ReLU
from flambeau.nn.modules.activation import ReLU6 as ReLU6
from flambeau.nn.modules.activation import SELU as SELU
from flambeau.nn.modules.activation import SiLU as SiLU
from flambeau.nn.modules.activation import Sigmoid as Sigmoid
from flambeau.nn.modules.activation import Softmax as Softmax
from flambeau.nn.modules.activation import Softmax2d as Softmax2d
from flambeau.nn.modules.activation import Softmin as Softmin
from flambeau.nn.modules.activation import Softplus as Softplus
from flambeau.nn.modules.activation import Softshrink as Softshrink
from flambeau.nn.modules.activation import Softsign as Softsign
from flambeau.nn.modules.activation import Tanh as Tanh
from flambeau.nn.modules.activation import Tanhshrink as Tanhshrink
from flambeau.nn.modules.activation import Threshold as Threshold
from flambeau.nn.modules.adaptive import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from flambeau.nn.modules.batchnorm import BatchNorm1d as BatchNorm1d
from flambeau.nn.modules.batchnorm import BatchNorm2d as BatchNorm2d
from flambeau.nn.modules.batchnorm import BatchNorm3d as BatchNorm3d
from flambeau.nn.modules.batchnorm import SyncBatchNorm as SyncBatchNorm
from flambeau.nn.modules.batchnorm import _LazyNormBase as _LazyNormBase
from flambeau.nn.modules.channelshuffle import ChannelShuffle as ChannelShuffle
from flambeau.nn.modules.container import Container as Container
from flambeau.nn.modules.container import ModuleDict as ModuleDict
from flambeau.nn.modules.container import ModuleList as ModuleList
from flambeau.nn.modules.container import ParameterDict as ParameterDict
from flambeau.nn.modules.container import ParameterList as ParameterList
from flambeau.nn.modules.container import Sequential as Sequential
from flambeau.nn.modules.conv import _ConvTransposeNd as _ConvTransposeNd
from flambeau.nn.modules.conv import _Forward as _Forward
from flambeau.nn.modules.conv import _LazyConvMixin as _LazyConvMixin
from flambeau.nn.modules.distance import CosineSimilarity as CosineSimilarity
from flambeau.nn.modules.distance import PairwiseDistance as PairwiseDistance
from flambeau.nn.modules.dropout import AlphaDropout as AlphaDropout
from flambeau.nn.modules.dropout import Dropout as Dropout
from flambeau.nn.modules.dropout import Dropout1d as Dropout1d
from flambeau.nn.modules.dropout import Dropout2d as Dropout2d
from flambeau.nn.modules.dropout import Dropout3d as Dropout3d
from flambeau.nn.modules.dropout import FeatureAlphaDropout as FeatureAlphaDropout
from flambeau.nn.modules.flatten import Flatten as Flatten
from flambeau.nn.modules.flatten import Unflatten as Unflatten
from flambeau.nn.modules.fold import Fold as Fold
from flambeau.nn.modules.fold import Unfold as Unfold
from flambeau.nn.modules.instancenorm import _InstanceNorm as _InstanceNorm
from flambeau.nn.modules.instancenorm import _LazyInstanceNorm as _LazyInstanceNorm
from flambeau.nn.modules.linear import Bilinear as Bilinear
from flambeau.nn.modules.linear import Identity as Identity
from flambeau.nn.modules.linear import LazyLinear as LazyLinear
from flambeau.nn.modules.linear import Linear as Linear
from flambeau.nn.modules.loss import BCELoss as BCELoss
from flambeau.nn.modules.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from flambeau.nn.modules.loss import CTCLoss as CTCLoss
from flambeau.nn.modules.loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from flambeau.nn.modules.loss import CrossEntropyLoss as CrossEntropyLoss
from flambeau.nn.modules.loss import GaussianNLLLoss as GaussianNLLLoss
from flambeau.nn.modules.loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from flambeau.nn.modules.loss import HuberLoss as HuberLoss
from flambeau.nn.modules.loss import KLDivLoss as KLDivLoss
from flambeau.nn.modules.loss import L1Loss as L1Loss
from flambeau.nn.modules.loss import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from flambeau.nn.modules.loss import LinearCrossEntropyOptions as LinearCrossEntropyOptions
from flambeau.nn.modules.loss import MSELoss as MSELoss
from flambeau.nn.modules.loss import MarginRankingLoss as MarginRankingLoss
from flambeau.nn.modules.loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from flambeau.nn.modules.loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from flambeau.nn.modules.loss import MultiMarginLoss as MultiMarginLoss
from flambeau.nn.modules.loss import NLLLoss as NLLLoss
from flambeau.nn.modules.loss import NLLLoss2d as NLLLoss2d
from flambeau.nn.modules.loss import PoissonNLLLoss as PoissonNLLLoss
from flambeau.nn.modules.loss import SmoothL1Loss as SmoothL1Loss
from flambeau.nn.modules.loss import SoftMarginLoss as SoftMarginLoss
from flambeau.nn.modules.loss import TripletMarginLoss as TripletMarginLoss
from flambeau.nn.modules.loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from flambeau.nn.modules.module import Module as Module
from flambeau.nn.modules.normalization import CrossMapLRN2d as CrossMapLRN2d
from flambeau.nn.modules.normalization import GroupNorm as GroupNorm
from flambeau.nn.modules.normalization import LayerNorm as LayerNorm
from flambeau.nn.modules.normalization import LocalResponseNorm as LocalResponseNorm
from flambeau.nn.modules.normalization import RMSNorm as RMSNorm
from flambeau.nn.modules.padding import _CircularPadNd as _CircularPadNd
from flambeau.nn.modules.padding import _ConstantPadNd as _ConstantPadNd
from flambeau.nn.modules.padding import _ReflectionPadNd as _ReflectionPadNd
from flambeau.nn.modules.padding import _ReplicationPadNd as _ReplicationPadNd
from flambeau.nn.modules.padding import _ZeroPadNd as _ZeroPadNd
from flambeau.nn.modules.pixelshuffle import PixelShuffle as PixelShuffle
from flambeau.nn.modules.pixelshuffle import PixelUnshuffle as PixelUnshuffle
from flambeau.nn.modules.pooling import AvgPool1d as AvgPool1d
from flambeau.nn.modules.pooling import AvgPool2d as AvgPool2d
from flambeau.nn.modules.pooling import AvgPool3d as AvgPool3d
from flambeau.nn.modules.pooling import _AdaptiveAvgPoolNd as _AdaptiveAvgPoolNd
from flambeau.nn.modules.pooling import _AdaptiveMaxPoolNd as _AdaptiveMaxPoolNd
from flambeau.nn.modules.pooling import _FractionalNd as _FractionalNd
from flambeau.nn.modules.pooling import _LPPoolNd as _LPPoolNd
from flambeau.nn.modules.pooling import _MaxPoolNd as _MaxPoolNd
from flambeau.nn.modules.pooling import _MaxUnpoolNd as _MaxUnpoolNd
from flambeau.nn.modules.rnn import GRU as GRU
from flambeau.nn.modules.rnn import GRUCell as GRUCell
from flambeau.nn.modules.rnn import LSTM as LSTM
from flambeau.nn.modules.rnn import LSTMCell as LSTMCell
from flambeau.nn.modules.rnn import RNN as RNN
from flambeau.nn.modules.rnn import RNNBase as RNNBase
from flambeau.nn.modules.rnn import RNNCell as RNNCell
from flambeau.nn.modules.rnn import RNNCellBase as RNNCellBase
from flambeau.nn.modules.sparse import Embedding as Embedding
from flambeau.nn.modules.sparse import EmbeddingBag as EmbeddingBag
from flambeau.nn.modules.transformer import Transformer as Transformer
from flambeau.nn.modules.transformer import TransformerDecoder as TransformerDecoder
from flambeau.nn.modules.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from flambeau.nn.modules.transformer import TransformerEncoder as TransformerEncoder
from flambeau.nn.modules.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from flambeau.nn.modules.upsampling import Upsample as Upsample
from flambeau.nn.modules.upsampling import UpsamplingBilinear2d as UpsamplingBilinear2d
from flambeau.nn.modules.upsampling import UpsamplingNearest2d as UpsamplingNearest2d
from flambeau.nn.parameter import Buffer as Buffer
from flambeau.nn.parameter import Parameter as Parameter
from flambeau.nn.parameter import UninitializedBuffer as UninitializedBuffer
from flambeau.nn.parameter import UninitializedParameter as UninitializedParameter
from typing import Any
from typing import Any, overload
import builtins

intrinsic: Any
qat: Any
quantizable: Any
quantized: Any

class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    def __init__(self, output_size: Any) -> None: ...
class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    def __init__(self, output_size: Any) -> None: ...
class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    def __init__(self, output_size: Any) -> None: ...
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    def __init__(self, output_size: Any, return_indices: builtins.bool | None = False) -> None: ...
class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    def __init__(self, output_size: Any, return_indices: builtins.bool | None = False) -> None: ...
class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    def __init__(self, output_size: Any, return_indices: builtins.bool | None = False) -> None: ...
class CircularPad1d(_CircularPadNd):
    def __init__(self, padding: Any) -> None: ...
class CircularPad2d(_CircularPadNd):
    def __init__(self, padding: Any) -> None: ...
class CircularPad3d(_CircularPadNd):
    def __init__(self, padding: Any) -> None: ...
class ConstantPad1d(_ConstantPadNd):
    def __init__(self, padding: Any, value: builtins.float) -> None: ...
class ConstantPad2d(_ConstantPadNd):
    def __init__(self, padding: Any, value: builtins.float) -> None: ...
class ConstantPad3d(_ConstantPadNd):
    def __init__(self, padding: Any, value: builtins.float) -> None: ...
class Conv1d(_Forward):
    def __init__(self, in_channels: builtins.int, out_channels: builtins.int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: builtins.int = 1, bias: builtins.bool = True, padding_mode: builtins.str = 'zeros', device: Any = None, dtype: Any = None) -> None: ...
class Conv2d(_Forward):
    def __init__(self, in_channels: builtins.int, out_channels: builtins.int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: builtins.int = 1, bias: builtins.bool = True, padding_mode: builtins.str = 'zeros', device: Any = None, dtype: Any = None) -> None: ...
class Conv3d(_Forward):
    def __init__(self, in_channels: builtins.int, out_channels: builtins.int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: builtins.int = 1, bias: builtins.bool = True, padding_mode: builtins.str = 'zeros', device: Any = None, dtype: Any = None) -> None: ...
class ConvTranspose1d(_ConvTransposeNd):
    def __init__(self, in_channels: builtins.int, out_channels: builtins.int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: builtins.int = 1, bias: builtins.bool = True, dilation: Any = 1, padding_mode: builtins.str = 'zeros', device: Any = None, dtype: Any = None) -> None: ...
class ConvTranspose2d(_ConvTransposeNd):
    def __init__(self, in_channels: builtins.int, out_channels: builtins.int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: builtins.int = 1, bias: builtins.bool = True, dilation: Any = 1, padding_mode: builtins.str = 'zeros', device: Any = None, dtype: Any = None) -> None: ...
class ConvTranspose3d(_ConvTransposeNd):
    def __init__(self, in_channels: builtins.int, out_channels: builtins.int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: builtins.int = 1, bias: builtins.bool = True, dilation: Any = 1, padding_mode: builtins.str = 'zeros', device: Any = None, dtype: Any = None) -> None: ...
class FractionalMaxPool2d(_FractionalNd):
    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: builtins.bool = False, _random_samples: _Tensor | None = None) -> None: ...
class FractionalMaxPool3d(_FractionalNd):
    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: builtins.bool = False, _random_samples: _Tensor | None = None) -> None: ...
class InstanceNorm1d(_InstanceNorm):
    def __init__(self, num_features: builtins.int, eps: builtins.float = ..., momentum: builtins.float = ..., affine: builtins.bool = False, track_running_stats: builtins.bool = False, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class InstanceNorm2d(_InstanceNorm):
    def __init__(self, num_features: builtins.int, eps: builtins.float = ..., momentum: builtins.float = ..., affine: builtins.bool = False, track_running_stats: builtins.bool = False, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class InstanceNorm3d(_InstanceNorm):
    def __init__(self, num_features: builtins.int, eps: builtins.float = ..., momentum: builtins.float = ..., affine: builtins.bool = False, track_running_stats: builtins.bool = False, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class LPPool1d(_LPPoolNd):
    def __init__(self, norm_type: builtins.float, kernel_size: Any, stride: Any | None = None, ceil_mode: builtins.bool = False) -> None: ...
class LPPool2d(_LPPoolNd):
    def __init__(self, norm_type: builtins.float, kernel_size: Any, stride: Any | None = None, ceil_mode: builtins.bool = False) -> None: ...
class LPPool3d(_LPPoolNd):
    def __init__(self, norm_type: builtins.float, kernel_size: Any, stride: Any | None = None, ceil_mode: builtins.bool = False) -> None: ...
class LazyBatchNorm1d(_LazyNormBase):
    def __init__(self, eps: builtins.float = ..., momentum: builtins.float | None = ..., affine: builtins.bool = True, track_running_stats: builtins.bool = True, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class LazyBatchNorm2d(_LazyNormBase):
    def __init__(self, eps: builtins.float = ..., momentum: builtins.float | None = ..., affine: builtins.bool = True, track_running_stats: builtins.bool = True, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class LazyBatchNorm3d(_LazyNormBase):
    def __init__(self, eps: builtins.float = ..., momentum: builtins.float | None = ..., affine: builtins.bool = True, track_running_stats: builtins.bool = True, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class LazyConv1d(_LazyConvMixin):
    def __init__(self, out_channels: builtins.int, kernel_size: Any, *args: Any, bias: builtins.bool = True, device: Any = None, dtype: Any = None, **kwargs: Any) -> None: ...
class LazyConv2d(_LazyConvMixin):
    def __init__(self, out_channels: builtins.int, kernel_size: Any, *args: Any, bias: builtins.bool = True, device: Any = None, dtype: Any = None, **kwargs: Any) -> None: ...
class LazyConv3d(_LazyConvMixin):
    def __init__(self, out_channels: builtins.int, kernel_size: Any, *args: Any, bias: builtins.bool = True, device: Any = None, dtype: Any = None, **kwargs: Any) -> None: ...
class LazyConvTranspose1d(_LazyConvMixin):
    def __init__(self, out_channels: builtins.int, kernel_size: Any, *args: Any, bias: builtins.bool = True, device: Any = None, dtype: Any = None, **kwargs: Any) -> None: ...
class LazyConvTranspose2d(_LazyConvMixin):
    def __init__(self, out_channels: builtins.int, kernel_size: Any, *args: Any, bias: builtins.bool = True, device: Any = None, dtype: Any = None, **kwargs: Any) -> None: ...
class LazyConvTranspose3d(_LazyConvMixin):
    def __init__(self, out_channels: builtins.int, kernel_size: Any, *args: Any, bias: builtins.bool = True, device: Any = None, dtype: Any = None, **kwargs: Any) -> None: ...
class LazyInstanceNorm1d(_LazyInstanceNorm):
    def __init__(self, eps: builtins.float = ..., momentum: builtins.float = ..., affine: builtins.bool = False, track_running_stats: builtins.bool = False, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class LazyInstanceNorm2d(_LazyInstanceNorm):
    def __init__(self, eps: builtins.float = ..., momentum: builtins.float = ..., affine: builtins.bool = False, track_running_stats: builtins.bool = False, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class LazyInstanceNorm3d(_LazyInstanceNorm):
    def __init__(self, eps: builtins.float = ..., momentum: builtins.float = ..., affine: builtins.bool = False, track_running_stats: builtins.bool = False, device: Any = None, dtype: Any = None, *, bias: builtins.bool = True) -> None: ...
class MaxPool1d(_MaxPoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: builtins.bool = False, ceil_mode: builtins.bool = False) -> None: ...
class MaxPool2d(_MaxPoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: builtins.bool = False, ceil_mode: builtins.bool = False) -> None: ...
class MaxPool3d(_MaxPoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: builtins.bool = False, ceil_mode: builtins.bool = False) -> None: ...
class MaxUnpool1d(_MaxUnpoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None: ...
class MaxUnpool2d(_MaxUnpoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None: ...
class MaxUnpool3d(_MaxUnpoolNd):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None: ...
class ReflectionPad1d(_ReflectionPadNd):
    def __init__(self, padding: Any) -> None: ...
class ReflectionPad2d(_ReflectionPadNd):
    def __init__(self, padding: Any) -> None: ...
class ReflectionPad3d(_ReflectionPadNd):
    def __init__(self, padding: Any) -> None: ...
class ReplicationPad1d(_ReplicationPadNd):
    def __init__(self, padding: Any) -> None: ...
class ReplicationPad2d(_ReplicationPadNd):
    def __init__(self, padding: Any) -> None: ...
class ReplicationPad3d(_ReplicationPadNd):
    def __init__(self, padding: Any) -> None: ...
class ZeroPad1d(_ZeroPadNd):
    def __init__(self, padding: Any) -> None: ...
class ZeroPad2d(_ZeroPadNd):
    def __init__(self, padding: Any) -> None: ...
class ZeroPad3d(_ZeroPadNd):
    def __init__(self, padding: Any) -> None: ...
def factory_kwargs(kwargs: builtins.dict | None) -> builtins.dict: ...

__all__ = ['AdaptiveAvgPool1d', 'AdaptiveAvgPool2d', 'AdaptiveAvgPool3d', 'AdaptiveLogSoftmaxWithLoss', 'AdaptiveMaxPool1d', 'AdaptiveMaxPool2d', 'AdaptiveMaxPool3d', 'AlphaDropout', 'AvgPool1d', 'AvgPool2d', 'AvgPool3d', 'BCELoss', 'BCEWithLogitsLoss', 'BatchNorm1d', 'BatchNorm2d', 'BatchNorm3d', 'Bilinear', 'Buffer', 'CELU', 'CTCLoss', 'ChannelShuffle', 'CircularPad1d', 'CircularPad2d', 'CircularPad3d', 'ConstantPad1d', 'ConstantPad2d', 'ConstantPad3d', 'Container', 'Conv1d', 'Conv2d', 'Conv3d', 'ConvTranspose1d', 'ConvTranspose2d', 'ConvTranspose3d', 'CosineEmbeddingLoss', 'CosineSimilarity', 'CrossEntropyLoss', 'CrossMapLRN2d', 'Dropout', 'Dropout1d', 'Dropout2d', 'Dropout3d', 'ELU', 'Embedding', 'EmbeddingBag', 'FeatureAlphaDropout', 'Flatten', 'Fold', 'FractionalMaxPool2d', 'FractionalMaxPool3d', 'GELU', 'GLU', 'GRU', 'GRUCell', 'GaussianNLLLoss', 'GroupNorm', 'Hardshrink', 'Hardsigmoid', 'Hardswish', 'Hardtanh', 'HingeEmbeddingLoss', 'HuberLoss', 'Identity', 'InstanceNorm1d', 'InstanceNorm2d', 'InstanceNorm3d', 'KLDivLoss', 'L1Loss', 'LPPool1d', 'LPPool2d', 'LPPool3d', 'LSTM', 'LSTMCell', 'LayerNorm', 'LazyBatchNorm1d', 'LazyBatchNorm2d', 'LazyBatchNorm3d', 'LazyConv1d', 'LazyConv2d', 'LazyConv3d', 'LazyConvTranspose1d', 'LazyConvTranspose2d', 'LazyConvTranspose3d', 'LazyInstanceNorm1d', 'LazyInstanceNorm2d', 'LazyInstanceNorm3d', 'LazyLinear', 'LeakyReLU', 'Linear', 'LinearCrossEntropyLoss', 'LinearCrossEntropyOptions', 'LocalResponseNorm', 'LogSigmoid', 'LogSoftmax', 'MSELoss', 'MarginRankingLoss', 'MaxPool1d', 'MaxPool2d', 'MaxPool3d', 'MaxUnpool1d', 'MaxUnpool2d', 'MaxUnpool3d', 'Mish', 'Module', 'ModuleDict', 'ModuleList', 'MultiLabelMarginLoss', 'MultiLabelSoftMarginLoss', 'MultiMarginLoss', 'MultiheadAttention', 'NLLLoss', 'NLLLoss2d', 'PReLU', 'PairwiseDistance', 'Parameter', 'ParameterDict', 'ParameterList', 'PixelShuffle', 'PixelUnshuffle', 'PoissonNLLLoss', 'RMSNorm', 'RNN', 'RNNBase', 'RNNCell', 'RNNCellBase', 'RReLU', 'ReLU', 'ReLU6', 'ReflectionPad1d', 'ReflectionPad2d', 'ReflectionPad3d', 'ReplicationPad1d', 'ReplicationPad2d', 'ReplicationPad3d', 'SELU', 'Sequential', 'SiLU', 'Sigmoid', 'SmoothL1Loss', 'SoftMarginLoss', 'Softmax', 'Softmax2d', 'Softmin', 'Softplus', 'Softshrink', 'Softsign', 'SyncBatchNorm', 'Tanh', 'Tanhshrink', 'Threshold', 'Transformer', 'TransformerDecoder', 'TransformerDecoderLayer', 'TransformerEncoder', 'TransformerEncoderLayer', 'TripletMarginLoss', 'TripletMarginWithDistanceLoss', 'Unflatten', 'Unfold', 'UninitializedBuffer', 'UninitializedParameter', 'Upsample', 'UpsamplingBilinear2d', 'UpsamplingNearest2d', 'ZeroPad1d', 'ZeroPad2d', 'ZeroPad3d', 'attention', 'branches', 'common_types', 'factory_kwargs', 'functional', 'grad', 'init', 'intrinsic', 'modules', 'packing', 'parallel', 'parameter', 'qat', 'quantizable', 'quantized', 'scaled', 'set_module_base', 'submodules', 'utils']
