//! Tells rustc which `CPython` this is built for (`cfg(Py_3_12)`, `cfg(Py_GIL_DISABLED)`), and the version report
//! what the protocol is built on.

use std::path::Path;

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    let lock = Path::new("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    // A build without the workspace's lock says so in the version report, and is otherwise the same.
    let text = std::fs::read_to_string(lock).unwrap_or_default();
    let found: Vec<String> = ["quinn-proto", "rustls", "aws-lc-rs"]
        .iter()
        .map(|name| format!("{name} {}", version_of(&text, name).unwrap_or("unknown")))
        .collect();
    println!("cargo::rustc-env=RINGLOOP_QUIC_ENGINE={}", found.join(", "));
}

/// The version of a package in a lock file.
fn version_of<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let entry = lock.split("[[package]]").find(|entry| {
        let mut lines = entry.lines();
        lines.any(|line| line == format!("name = \"{name}\""))
    })?;
    let version = entry.lines().find_map(|line| line.strip_prefix("version = \""))?;
    version.strip_suffix('"')
}
