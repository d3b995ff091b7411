//! A fuzz target's inputs as a test: the corpus that is kept, then mutations of it.
//!
//! Called by: the tests of the crates that have fuzz targets.

use std::panic::catch_unwind;
use std::path::Path;

/// Runs `target` on each input of `fuzz/corpus/NAME` in the crate at `root`, then on `mutation_count` mutations of them.
/// A mutation depends on its seed and the corpus alone; a failure names both.
pub fn replay(root: &str, name: &str, mutation_count: u64, target: fn(&[u8])) {
    // A package of the crate alone has no corpus.
    let files = std::fs::read_dir(Path::new(root).join("fuzz/corpus").join(name));
    let files = files.ok().into_iter().flatten();
    let mut corpus: Vec<Vec<u8>> =
        files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    corpus.sort();
    for input in &corpus {
        target(input);
    }
    for seed in 1..=mutation_count {
        let input = mutation(&corpus, seed);
        let result = catch_unwind(|| target(&input));
        assert!(result.is_ok(), "{name}, seed {seed}: {input:02x?}");
    }
}

/// An input with up to eight changes, or as many bytes of noise where there is no corpus.
fn mutation(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize
    };
    let mut input = match corpus.len() {
        0 => Vec::new(),
        count => corpus[random() % count].clone(),
    };
    for _change in 0..=random() % 8 {
        let at = random() % (input.len() + 1);
        match random() % 4 {
            0 => input.insert(at, random() as u8),
            1 if at < input.len() => input[at] ^= 1 << (random() % 8),
            2 if at < input.len() => drop(input.remove(at)),
            _ => input.extend((0..random() % 40).map(|_| random() as u8)),
        }
    }
    input
}
