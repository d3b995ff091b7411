//! Features of this kernel's ring, required and optional.
//!
//! Owns: the two tables below. Called by: set-up (required features), the drivers (optional ones),
//! `doctor` (to print them). Makes no system call; it reads the results that set-up collected.

use super::abi::{self, Params, Probe};
use super::refusal::{Cause, Refusal};
use std::fmt;

/// Numbers of the header with their names, by the kernel that has them first.
macro_rules! since {
    ($($version:literal: $($name:ident)+)+) => {
        &[$($((abi::$name, stringify!($name), $version),)+)+]
    };
}

/// Feature bits that the queues and the drivers are built on; all of them are older than 6.1.
const REQUIRED_BITS: &[(u32, &str, &str)] = since! {
    "5.4": IORING_FEAT_SINGLE_MMAP
    "5.5": IORING_FEAT_NODROP IORING_FEAT_SUBMIT_STABLE
    "5.6": IORING_FEAT_RW_CUR_POS
    "5.7": IORING_FEAT_FAST_POLL
    "5.11": IORING_FEAT_EXT_ARG
    "5.17": IORING_FEAT_CQE_SKIP
};

/// Operations that the drivers use without a check.
const REQUIRED_OPERATIONS: &[(u8, &str, &str)] = since! {
    "5.1": IORING_OP_NOP IORING_OP_POLL_ADD IORING_OP_POLL_REMOVE IORING_OP_READV IORING_OP_WRITEV
        IORING_OP_FSYNC IORING_OP_READ_FIXED IORING_OP_WRITE_FIXED
    "5.3": IORING_OP_SENDMSG IORING_OP_RECVMSG
    "5.4": IORING_OP_TIMEOUT
    "5.5": IORING_OP_ACCEPT IORING_OP_ASYNC_CANCEL IORING_OP_CONNECT IORING_OP_LINK_TIMEOUT
    "5.6": IORING_OP_CLOSE IORING_OP_READ IORING_OP_WRITE IORING_OP_SEND IORING_OP_RECV
        IORING_OP_FALLOCATE IORING_OP_OPENAT IORING_OP_STATX
    "5.7": IORING_OP_SPLICE
    "5.8": IORING_OP_TEE
    "5.11": IORING_OP_RENAMEAT IORING_OP_UNLINKAT
    "5.15": IORING_OP_MKDIRAT IORING_OP_SYMLINKAT IORING_OP_LINKAT
};

/// An optional feature of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Feature {
    /// No index array between us and the entries (6.6).
    NoSqarray,
    /// An idle loop does not show as I/O wait (6.15).
    NoIowait,
    /// A wait can collect a batch, and take an absolute timeout (6.12).
    MinTimeout,
    /// One receive can span several provided buffers (6.10).
    RecvsendBundle,
    /// Registration takes a registered ring descriptor (6.3).
    RegisteredRegister,
    /// Sending without a copy.
    SendZeroCopy,
    /// Posting to another ring.
    MsgRing,
    /// Multishot reads of pipes and the like (6.7).
    ReadMultishot,
    /// Waiting for a child process (6.7).
    Waitid,
    /// Waiting on a futex (6.7).
    Futex,
    /// Setting a file's length (6.9).
    Ftruncate,
    /// Provided buffers used in pieces (6.12), with completions in order (6.15).
    IncrementalBuffers,
}

enum Evidence {
    Bit(u32),
    Operation(u8),
    SetupFlag(u32),
}

const OPTIONAL: [(Feature, &str, Evidence); 12] = [
    (Feature::NoSqarray, "no-sqarray", Evidence::SetupFlag(abi::IORING_SETUP_NO_SQARRAY)),
    (Feature::NoIowait, "no-iowait", Evidence::Bit(abi::IORING_FEAT_NO_IOWAIT)),
    (Feature::MinTimeout, "min-timeout", Evidence::Bit(abi::IORING_FEAT_MIN_TIMEOUT)),
    (Feature::RecvsendBundle, "recvsend-bundle", Evidence::Bit(abi::IORING_FEAT_RECVSEND_BUNDLE)),
    (Feature::RegisteredRegister, "reg-reg-ring", Evidence::Bit(abi::IORING_FEAT_REG_REG_RING)),
    (Feature::SendZeroCopy, "send-zc", Evidence::Operation(abi::IORING_OP_SENDMSG_ZC)),
    (Feature::MsgRing, "msg-ring", Evidence::Operation(abi::IORING_OP_MSG_RING)),
    (Feature::ReadMultishot, "read-multishot", Evidence::Operation(abi::IORING_OP_READ_MULTISHOT)),
    (Feature::Waitid, "waitid", Evidence::Operation(abi::IORING_OP_WAITID)),
    (Feature::Futex, "futex", Evidence::Operation(abi::IORING_OP_FUTEX_WAIT)),
    (Feature::Ftruncate, "ftruncate", Evidence::Operation(abi::IORING_OP_FTRUNCATE)),
    // It has no bit: use that of the release in which completions are in order.
    (Feature::IncrementalBuffers, "incremental-buffers", Evidence::Bit(abi::IORING_FEAT_NO_IOWAIT)),
];

/// The optional features of this kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// Compares the kernel's features with the tables; the first missing required feature is
    /// the refusal.
    pub(super) fn read(params: &Params, probe: &Probe) -> Result<Self, Refusal> {
        for &(bit, missing, since) in REQUIRED_BITS {
            if params.features & bit == 0 {
                return Err(Refusal { cause: Cause::TooOld { missing, since } });
            }
        }
        for &(operation, missing, since) in REQUIRED_OPERATIONS {
            if !supported(probe, operation) {
                return Err(Refusal { cause: Cause::TooOld { missing, since } });
            }
        }
        let mut set = 0;
        for (feature, _, evidence) in &OPTIONAL {
            let present = match *evidence {
                Evidence::Bit(bit) => params.features & bit != 0,
                Evidence::Operation(operation) => supported(probe, operation),
                Evidence::SetupFlag(flag) => params.flags & flag != 0,
            };
            set |= u32::from(present) << *feature as u8;
        }
        Ok(Self(set))
    }

    /// True if the kernel has `feature`.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u8 & 1 == 1
    }

    /// Every feature with its name, and whether the kernel has it.
    pub fn iter(self) -> impl Iterator<Item = (&'static str, bool)> {
        OPTIONAL.iter().map(move |&(feature, name, _)| (name, self.has(feature)))
    }
}

fn supported(probe: &Probe, operation: u8) -> bool {
    operation < probe.ops_len
        && probe.ops[usize::from(operation)].flags & abi::IO_URING_OP_SUPPORTED != 0
}

impl fmt::Display for Features {
    /// Lists the names, with a prefix for missing ones: `no-sqarray -no-iowait …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, present)) in self.iter().enumerate() {
            let space = if position == 0 { "" } else { " " };
            let sign = if present { "" } else { "-" };
            write!(f, "{space}{sign}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::uring::testing::OldKernel;
    use crate::sys::uring::{Config, Ring};

    fn features(kernel: &OldKernel) -> Features {
        let config = Config { entries: 1, cq_entries: 1, polling: None };
        Ring::new_with(&config, kernel).unwrap().features()
    }

    #[test]
    fn every_feature_has_one_row_and_one_name() {
        let mut names: Vec<_> = OPTIONAL.iter().map(|(_, name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPTIONAL.len());
        for (row, (feature, ..)) in OPTIONAL.iter().enumerate() {
            assert_eq!(*feature as usize, row);
        }
    }

    #[test]
    fn what_is_taken_away_is_not_listed_and_nothing_else_changes() {
        let all = features(&OldKernel::default());
        let fewer = features(&OldKernel {
            missing_features: abi::IORING_FEAT_NO_IOWAIT,
            missing_operations: vec![abi::IORING_OP_MSG_RING],
            refused_flags: abi::IORING_SETUP_NO_SQARRAY,
            ..OldKernel::default()
        });
        let gone =
            [Feature::NoIowait, Feature::IncrementalBuffers, Feature::MsgRing, Feature::NoSqarray];
        for (feature, ..) in OPTIONAL {
            assert_eq!(fewer.has(feature), all.has(feature) && !gone.contains(&feature));
        }
        assert!(fewer.to_string().starts_with("-no-sqarray -no-iowait "), "{fewer}");
        assert_eq!(fewer.iter().count(), OPTIONAL.len());
    }
}
