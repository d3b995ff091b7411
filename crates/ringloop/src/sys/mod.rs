//! Layer 1: the kernel boundary.
