//! The processor's caches, and what they are worth to a copy.
//!
//! Owns: nothing. Called by: the executor, once a loop; who makes a registered buffer. Never does: measure.

/// With how many streams messages that are received one after the other, in batches of `batch_bytes` at most, are as good as
/// at hand when they are sent.
///
/// With any where a core's second-level cache holds a batch, or the kernel's copies fetch ahead of themselves. Intel's do
/// not fetch what its third level has, which is far from its cores, and each message is in the second level four times: as
/// the peer's and as ours, received and to be sent (decision 18).
pub fn warm_streams(message_bytes: usize, batch_bytes: usize) -> usize {
    let second_level = second_level_bytes();
    match second_level {
        Some(bytes) if is_of_intel() => bytes / (4 * message_bytes),
        Some(bytes) if bytes < batch_bytes && !copies_fetch_ahead() => 0,
        // Where the C library does not tell, too.
        _ => usize::MAX,
    }
}

/// Whether bytes are copied by the processor's microcode (`rep movsb`, "ERMS"; of AMD's since Zen 3), which reads ahead
/// farther than a loop does: the kernel copies so wherever it is offered.
fn copies_fetch_ahead() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("ermsb")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// How far behind a page's beginning memory best begins that the kernel copies pages to.
///
/// Intel's microcode (`rep movsb`) is 5 % slower to the beginning of a line than to anywhere else. AMD's (Zen 3) is 27 times
/// slower to a few bytes behind it, where loads seem to meet the stores before them (decision 15).
pub fn copy_offset() -> usize {
    if is_of_intel() { 4096 - 16 } else { 0 }
}

/// Source: Intel's manual, volume 2, CPUID: leaf 0 names the vendor in EBX, EDX and ECX.
#[cfg(target_arch = "x86_64")]
fn is_of_intel() -> bool {
    // It is no longer unsafe in later versions of Rust.
    #[allow(unused_unsafe)]
    // SAFETY: every processor of this architecture has the instruction, and its leaf 0.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes) == [*b"Genu", *b"ineI", *b"ntel"]
}

#[cfg(not(target_arch = "x86_64"))]
fn is_of_intel() -> bool {
    false
}

/// How many bytes the second-level cache of a core holds; `None` where the C library does not tell.
///
/// Source: sysconf(3), `_SC_LEVEL2_CACHE_SIZE` (glibc).
fn second_level_bytes() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: no pointer is passed.
        let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
        // 0 where it is not known, -1 where the question is not.
        usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_kept_warm_for_many_and_what_no_cache_holds_by_fast_copies_only() {
        let Some(bytes) = second_level_bytes() else {
            return assert_eq!(warm_streams(1, usize::MAX), usize::MAX);
        };
        let (few, all) = (
            warm_streams(bytes / 8, usize::MAX),
            warm_streams(bytes / 8, 1),
        );
        if is_of_intel() {
            assert_eq!((few, all), (2, 2));
        } else {
            assert_eq!(few, if copies_fetch_ahead() { usize::MAX } else { 0 });
            assert_eq!(all, usize::MAX);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vendor_is_the_one_that_the_kernel_names() {
        let told = std::fs::read_to_string("/proc/cpuinfo").expect("/proc");
        assert_eq!(told.contains("GenuineIntel"), is_of_intel());
    }

    #[test]
    fn what_is_told_is_the_size_of_a_cache() {
        if let Some(bytes) = second_level_bytes() {
            assert!((1 << 14..1 << 30).contains(&bytes), "{bytes}");
        }
    }
}
