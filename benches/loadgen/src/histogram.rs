//! Latency histogram: constant memory, no allocation during a run.
//!
//! Called by: the tally. Each power of two is split into 64 equal buckets, so a percentile is off
//! by 1.6 % at most.

use std::time::Duration;

const SPLIT_BITS: u32 = 6;
/// Covers every `u64` of nanoseconds.
const BUCKETS: usize = ((64 - SPLIT_BITS + 1) as usize) << SPLIT_BITS;

/// Counts of latencies.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Make an empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }

    /// Count one latency.
    pub fn record(&mut self, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(latency_ns)] += 1;
        self.total += 1;
    }

    /// Find the latency that the given share of requests did not exceed, in microseconds.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest_of(bucket) as f64 / 1_000.0;
            }
        }
        0.0
    }
}

/// Small values have their own bucket; above, the top `SPLIT_BITS + 1` bits select it.
fn bucket_of(value: u64) -> usize {
    let magnitude = (64 - value.leading_zeros()).saturating_sub(SPLIT_BITS + 1);
    ((u64::from(magnitude) << SPLIT_BITS) + (value >> magnitude)) as usize
}

/// The highest value that falls into `bucket`.
fn highest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let magnitude = (bucket >> SPLIT_BITS).saturating_sub(1);
    let mantissa = bucket - (magnitude << SPLIT_BITS);
    (mantissa << magnitude) + ((1u64 << magnitude) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_without_gaps_and_narrow() {
        let mut previous = None;
        for exponent in 0..40 {
            for value in [1u64 << exponent, (1 << exponent) + 1, (1 << exponent) * 3 / 2] {
                let bucket = bucket_of(value);
                let highest = highest_of(bucket);
                assert!(highest >= value, "{value} lies above its bucket");
                assert!(highest - value <= value >> SPLIT_BITS, "{value} too wide");
                assert_eq!(bucket_of(highest), bucket, "{value}");
                assert_eq!(bucket_of(highest + 1), bucket + 1, "{value}");
                previous = Some(bucket);
            }
        }
        assert!(previous.is_some_and(|bucket| bucket < BUCKETS));
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut histogram = Histogram::new();
        (1..=1_000).for_each(|us| histogram.record(Duration::from_micros(us)));
        assert!((histogram.percentile_us(0.50) - 500.0).abs() < 9.0);
        assert!((histogram.percentile_us(0.99) - 990.0).abs() < 17.0);
    }

    #[test]
    fn an_empty_histogram_has_no_latency() {
        assert!(Histogram::new().percentile_us(0.5) == 0.0);
    }
}
