"""Graph of primitives -> loop IR -> fused schedule: nothing in here knows a device."""
