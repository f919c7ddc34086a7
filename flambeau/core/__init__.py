"""The bottom room: dtypes, devices, storage, Tensor, dispatch, symbolic sizes, errors, logging, settings."""
