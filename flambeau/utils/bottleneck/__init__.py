"""`python -m torch.utils.bottleneck SCRIPT [args]`: a first look at where a program's time goes."""
