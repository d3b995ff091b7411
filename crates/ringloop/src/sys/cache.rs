//! The processor's caches, and what they are worth to a copy.
//!
//! Owns: nothing. Called by: the executor, once a loop. Never does: measure.

/// Whether so many bytes, which are received one after the other and then sent, are as good as at hand when they are sent:
/// where a core's second-level cache holds them, or the kernel's copies fetch ahead of themselves. True where the C library
/// does not tell how much the cache holds.
pub fn keeps_warm(batch_bytes: usize) -> bool {
    copies_fetch_ahead() || second_level_bytes().is_none_or(|bytes| bytes >= batch_bytes)
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
    fn little_is_kept_warm_and_what_no_cache_holds_by_fast_copies_only() {
        assert!(keeps_warm(1));
        if second_level_bytes().is_some() {
            assert_eq!(keeps_warm(usize::MAX), copies_fetch_ahead());
        }
    }

    #[test]
    fn what_is_told_is_the_size_of_a_cache() {
        if let Some(bytes) = second_level_bytes() {
            assert!((1 << 14..1 << 30).contains(&bytes), "{bytes}");
        }
    }
}
