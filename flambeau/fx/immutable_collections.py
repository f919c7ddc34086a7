"""torch.fx.immutable_collections: the containers in a node's arguments."""

from flambeau.fx.node import immutable_dict, immutable_list

__all__ = ["immutable_dict", "immutable_list"]
