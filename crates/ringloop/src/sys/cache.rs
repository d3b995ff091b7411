//! The processor's caches.
//!
//! Owns: nothing. Called by: the executor, once a loop. Never does: measure.

/// How many bytes the second-level cache of a core holds; `None` where the C library does not tell.
///
/// Source: sysconf(3), `_SC_LEVEL2_CACHE_SIZE` (glibc).
pub fn second_level_bytes() -> Option<usize> {
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
    fn what_is_told_is_the_size_of_a_cache() {
        if let Some(bytes) = second_level_bytes() {
            assert!((1 << 14..1 << 30).contains(&bytes), "{bytes}");
        }
    }
}
