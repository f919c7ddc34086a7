"""What surrounds training: data loading, safetensors files, and other tools (`torch.utils`)."""
