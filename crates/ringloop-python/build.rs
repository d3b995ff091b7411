//! Tells rustc which `CPython` this is built for (`cfg(Py_3_12)`, `cfg(Py_GIL_DISABLED)`), whether the C library is
//! glibc (`cfg(glibc)`), and the version report what the protocol is built on.

use std::env;
use std::path::Path;

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo::rustc-check-cfg=cfg(glibc)");
    match (target("OS").as_str(), target("ENV").as_str()) {
        ("linux", "gnu") => println!("cargo::rustc-cfg=glibc"),
        ("windows", _) => link_python(),
        _ => {}
    }
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

fn target(what: &str) -> String {
    env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default()
}

/// Windows finds a function by its library: `pyo3` does that for what it declares, and this for the rest.
fn link_python() {
    let python = pyo3_build_config::get();
    if let Some(name) = python.lib_name() {
        println!("cargo::rustc-link-lib={name}");
    }
    if let Some(folder) = python.lib_dir() {
        println!("cargo::rustc-link-search=native={folder}");
    }
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
