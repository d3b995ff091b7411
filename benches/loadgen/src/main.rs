//! Closed-loop TCP load generator for the benchmarks.

fn main() {}
