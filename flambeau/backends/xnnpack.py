"""torch.backends.xnnpack: not there; its operators' work is oneDNN's."""

enabled = False
