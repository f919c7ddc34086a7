"""Where PyTorch keeps fully_shard (torch.distributed._composable.fsdp)."""
