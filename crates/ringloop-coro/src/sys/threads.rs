//! Threads of the process.
//!
//! Owns: nothing. Called by: `deadlock`.

/// Threads of the process, without the kernel's own that a ring starts.
#[cfg(target_os = "linux")]
pub(crate) fn thread_count() -> Option<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/task").ok()? {
        let name = std::fs::read_to_string(entry.ok()?.path().join("comm")).ok()?;
        count += usize::from(!name.starts_with("iou-"));
    }
    Some(count)
}

/// Unknown: the system starts threads of its own in a process (on Windows, the loader's).
#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_count() -> Option<usize> {
    None
}
