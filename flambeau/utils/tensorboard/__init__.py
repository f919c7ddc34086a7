"""torch.utils.tensorboard: event files that TensorBoard reads, written without its package or protobuf."""

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
