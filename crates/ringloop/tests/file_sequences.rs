//! Random sequences of file operations against a model: a vector of bytes under a name, on both drivers.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::fs::{self, File, OpenOptions};
use ringloop::{Options, Runtime};
use ringloop_testing::drivers;
use ringloop_testing::engine::{alone, expect_descriptors, open_descriptors};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;

/// Larger than a page, small enough that operations overlap.
const FILE_BYTES: usize = 20_000;

#[derive(Debug, Clone)]
enum Step {
    WriteAt(usize, usize, u8),
    WriteVectored(usize, Vec<usize>, u8),
    Write(usize, u8),
    ReadAt(usize, usize),
    ReadExact(usize, usize),
    ReadVectored(usize, Vec<usize>),
    Read(usize),
    /// A read whose future is dropped after one poll.
    GiveUpRead(usize, usize),
    SetLen(usize),
    Allocate(usize, usize),
    Sync,
    Rename,
    Reopen,
    Copy,
    Metadata,
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..FILE_BYTES;
    let len = || prop_oneof![0..10_usize, 1..9000_usize];
    let lens = || prop::collection::vec(prop_oneof![Just(0), 1..4000_usize], 0..5);
    prop_oneof![
        (at(), len(), any::<u8>()).prop_map(|(at, len, byte)| Step::WriteAt(at, len, byte)),
        (at(), lens(), any::<u8>()).prop_map(|(at, l, byte)| Step::WriteVectored(at, l, byte)),
        (len(), any::<u8>()).prop_map(|(len, byte)| Step::Write(len, byte)),
        (at(), len()).prop_map(|(at, len)| Step::ReadAt(at, len)),
        (at(), len()).prop_map(|(at, len)| Step::ReadExact(at, len)),
        (at(), lens()).prop_map(|(at, lens)| Step::ReadVectored(at, lens)),
        len().prop_map(Step::Read),
        (at(), len()).prop_map(|(at, len)| Step::GiveUpRead(at, len)),
        at().prop_map(Step::SetLen),
        (at(), 1..4000_usize).prop_map(|(at, len)| Step::Allocate(at, len)),
        Just(Step::Sync),
        Just(Step::Rename),
        Just(Step::Reopen),
        Just(Step::Copy),
        Just(Step::Metadata),
    ]
}

/// The expected contents.
struct Model {
    bytes: Vec<u8>,
    position: usize,
    path: PathBuf,
    other: PathBuf,
}

impl Model {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
    }

    fn read(&self, at: usize, len: usize) -> &[u8] {
        let from = at.min(self.bytes.len());
        &self.bytes[from..(from + len).min(self.bytes.len())]
    }
}

async fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(path).await.unwrap()
}

async fn run(file: &mut File, model: &mut Model, step: Step) {
    match step {
        Step::WriteAt(at, len, byte) => {
            let (result, back) = file.write_all_at(vec![byte; len], at as u64).await;
            result.unwrap();
            model.write(at, &back);
        }
        Step::WriteVectored(at, lens, byte) => {
            let bufs: Vec<_> = lens.into_iter().map(|len| vec![byte; len]).collect();
            let (count, back) = file.write_vectored_at(bufs, at as u64).await;
            assert_eq!(count.unwrap(), back.concat().len());
            model.write(at, &back.concat());
        }
        Step::Write(len, byte) => {
            let (result, back) = file.write_all(vec![byte; len]).await;
            result.unwrap();
            model.write(model.position, &back);
            model.position += len;
        }
        Step::ReadAt(at, len) => {
            let (count, bytes) = file.read_at(Vec::with_capacity(len), at as u64).await;
            assert_eq!(count.unwrap(), bytes.len());
            assert!(bytes == model.read(at, bytes.capacity()));
        }
        Step::ReadExact(at, len) => {
            let (result, bytes) = file.read_exact_at(Vec::new(), len, at as u64).await;
            assert_eq!(result.is_ok(), at + len <= model.bytes.len() || len == 0);
            assert!(bytes == model.read(at, len));
        }
        Step::ReadVectored(at, lens) => {
            let total = lens.iter().sum();
            let bufs = lens.into_iter().map(Vec::with_capacity).collect();
            let (count, bufs) = file.read_vectored_at(bufs, at as u64).await;
            assert!(bufs.concat() == model.read(at, total));
            assert_eq!(count.unwrap(), bufs.concat().len());
        }
        Step::Read(len) => {
            let (count, bytes) = file.read(Vec::with_capacity(len)).await;
            assert!(bytes == model.read(model.position, bytes.capacity()));
            model.position += count.unwrap();
        }
        Step::GiveUpRead(at, len) => {
            let mut read = pin!(file.read_at(Vec::with_capacity(len), at as u64));
            std::future::poll_fn(|cx| {
                drop(read.as_mut().poll(cx));
                Poll::Ready(())
            })
            .await;
        }
        Step::SetLen(len) => {
            file.set_len(len as u64).await.unwrap();
            model.bytes.resize(len, 0);
        }
        Step::Allocate(at, len) => {
            file.allocate(at as u64, len as u64).await.unwrap();
            model.bytes.resize(model.bytes.len().max(at + len), 0);
        }
        Step::Sync => file.sync_data().await.unwrap(),
        Step::Rename => {
            fs::rename(&model.path, &model.other).await.unwrap();
            std::mem::swap(&mut model.path, &mut model.other);
        }
        Step::Reopen => {
            *file = open(&model.path).await;
            model.position = 0;
        }
        Step::Copy => {
            let copied = fs::copy(&model.path, &model.other).await.unwrap();
            assert_eq!(copied, model.bytes.len() as u64);
            assert!(fs::read(&model.other).await.unwrap() == model.bytes);
            fs::remove_file(&model.other).await.unwrap();
        }
        Step::Metadata => {
            let len = model.bytes.len() as u64;
            assert_eq!(file.metadata().await.unwrap().len(), len);
            assert_eq!(fs::metadata(&model.path).await.unwrap().len(), len);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        // The seeds of failures are printed; a regression gets a test of its own.
        failure_persistence: None,
        ..ProptestConfig::with_cases(
            std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48)
        )
    })]

    #[test]
    fn file_is_what_the_model_says(steps in prop::collection::vec(step(), 1..40)) {
        let _alone = alone();
        for driver in drivers() {
            let before = open_descriptors();
            let dir = std::env::temp_dir().join(format!("ringloop-model-{}", std::process::id()));
            drop(std::fs::remove_dir_all(&dir));
            std::fs::create_dir(&dir).unwrap();
            let mut model = Model {
                bytes: Vec::new(),
                position: 0,
                path: dir.join("a"),
                other: dir.join("b"),
            };
            let options = Options { driver, ..Options::default() };
            let runtime = Runtime::with_options(options).unwrap();
            runtime.block_on(async {
                let mut file = open(&model.path).await;
                for step in steps.clone() {
                    run(&mut file, &mut model, step).await;
                }
                assert!(fs::read(&model.path).await.unwrap() == model.bytes);
            }).unwrap();
            drop(runtime);
            std::fs::remove_dir_all(&dir).unwrap();
            expect_descriptors(before);
        }
    }
}
