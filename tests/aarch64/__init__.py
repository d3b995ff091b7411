"""The engine and the package on aarch64, emulated by qemu: `make aarch64`."""
