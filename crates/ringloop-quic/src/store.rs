//! Sessions and address tokens as files, which workers, processes and machines may share.
//!
//! Owns: [`Directory`], a store for servers' sessions and for clients' address tokens. Called by: TLS and the engine, in
//! the midst of handshakes, on the thread that drives the endpoint. Never does: fail a handshake; what cannot be kept or
//! read is not resumed.
//!
//! A file is an entry, written beside and renamed into its place, and taken by renaming it away: whoever does that
//! first has it, so a session is resumed once, and early data is not taken twice, by however many processes.

use crate::config::TokenStore;
use crate::limits::{STORED_ENTRIES, STORED_LIFETIME, STORED_TOKENS};
use bytes::Bytes;
use rustls::server::StoresServerSessions;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// How many entries are written between two looks at how many there are.
const WRITES_BETWEEN: u64 = 64;

/// A directory whose files are entries. Whoever can read them can read what resumed sessions say: it is made for its
/// owner alone.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    count_max: usize,
    written: AtomicU64,
}

impl Directory {
    /// Use a directory, which is made where it is not there.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        fs::read_dir(&path)?;
        Ok(Self {
            path,
            count_max: STORED_ENTRIES,
            written: AtomicU64::new(0),
        })
    }

    /// Keep at most so many entries (65536 by default), the newest; somewhat more between two looks.
    #[must_use]
    pub fn entries_max(mut self, count: usize) -> Self {
        self.count_max = count;
        self
    }

    /// A name that nobody else uses.
    fn own(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.path.join(format!(".{}-{number}", std::process::id()))
    }

    fn write(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let own = self.own();
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&own)?;
        let written = file.write_all(value);
        drop(file);
        let placed = written.and_then(|()| fs::rename(&own, self.path.join(name)));
        if placed.is_err() {
            drop(fs::remove_file(&own));
        }
        let count = self.written.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(WRITES_BETWEEN) {
            drop(self.tidy());
        }
        placed
    }

    fn read(path: &Path) -> Option<Vec<u8>> {
        let written = fs::metadata(path).ok()?.modified().ok()?;
        is_fresh(written).then(|| fs::read(path).ok()).flatten()
    }

    /// Read an entry and remove it; where several do, one of them gets it.
    fn claim(&self, name: &str) -> Option<Vec<u8>> {
        let own = self.own();
        fs::rename(self.path.join(name), &own).ok()?;
        let value = Self::read(&own);
        drop(fs::remove_file(&own));
        value
    }

    /// The entries whose names begin so, the oldest first.
    fn entries(&self, prefix: &str) -> io::Result<Vec<(SystemTime, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // One that somebody has taken meanwhile is none.
            let written = entry.metadata().and_then(|about| about.modified());
            if let (Ok(name), Ok(written)) = (entry.file_name().into_string(), written)
                && name.starts_with(prefix)
            {
                found.push((written, name));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Remove what is too old or too much, and what processes that were killed have left.
    fn tidy(&self) -> io::Result<()> {
        let entries = self.entries("")?;
        let excess = entries.len().saturating_sub(self.count_max);
        for (at, (written, name)) in entries.iter().enumerate() {
            if at < excess || !is_fresh(*written) {
                drop(fs::remove_file(self.path.join(name)));
            }
        }
        Ok(())
    }
}

fn is_fresh(written: SystemTime) -> bool {
    // A clock that was set back makes nothing old.
    written.elapsed().map_or(true, |age| age < STORED_LIFETIME)
}

fn hex(kind: &str, bytes: &[u8]) -> String {
    bytes.iter().fold(kind.to_owned(), |mut name, byte| {
        // A string takes whatever is written.
        let _always_ok = write!(name, "{byte:02x}");
        name
    })
}

/// The longest key: its file's name has to fit into what systems allow.
const KEY_LEN_MAX: usize = 100;

impl StoresServerSessions for Directory {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        key.len() <= KEY_LEN_MAX && self.write(&hex("session-", &key), &value).is_ok()
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        Self::read(&self.path.join(hex("session-", key)))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.claim(&hex("session-", key))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl TokenStore for Directory {
    fn insert(&self, server_name: &str, token: Bytes) {
        let mut key = server_name.as_bytes();
        key = &key[..key.len().min(KEY_LEN_MAX - 8)];
        let prefix = hex("token-", key) + "-";
        let kept = self.entries(&prefix).unwrap_or_default();
        for (_, name) in kept
            .iter()
            .take((kept.len() + 1).saturating_sub(STORED_TOKENS))
        {
            drop(fs::remove_file(self.path.join(name)));
        }
        // Tokens of a server do not begin alike: they are sealed.
        let tail = &token[token.len().saturating_sub(8)..];
        drop(self.write(&hex(&prefix, tail), &token));
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let mut key = server_name.as_bytes();
        key = &key[..key.len().min(KEY_LEN_MAX - 8)];
        let kept = self.entries(&(hex("token-", key) + "-")).ok()?;
        let newest_first = kept.iter().rev();
        newest_first
            .filter_map(|(_, name)| self.claim(name))
            .map(Bytes::from)
            .next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            drop(fs::remove_dir_all(&path));
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_session_is_taken_once_by_however_many() {
        let folder = Folder::new("ringloop-quic-store-once");
        let stores: Vec<_> = (0..4)
            .map(|_| Arc::new(Directory::open(&folder.0).unwrap()))
            .collect();
        for round in 0..50u8 {
            assert!(stores[0].put(vec![round; 32], vec![round; 500]));
            assert_eq!(stores[1].get(&[round; 32]), Some(vec![round; 500]));
            let takers = stores.iter().map(|store| {
                let store = Arc::clone(store);
                std::thread::spawn(move || StoresServerSessions::take(&*store, &[round; 32]))
            });
            let takers: Vec<_> = takers.collect();
            let taken = takers.into_iter().filter_map(|taker| taker.join().unwrap());
            assert_eq!(taken.collect::<Vec<_>>(), [vec![round; 500]]);
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn entries_are_for_their_owner_bounded_and_not_older_than_a_week() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("ringloop-quic-store-bounds");
        let store = Directory::open(&folder.0).unwrap().entries_max(10);
        assert_eq!(
            fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777,
            0o700
        );
        for number in 0..=WRITES_BETWEEN as u8 {
            assert!(store.put(vec![number], vec![1]));
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 10);
        let last = folder.0.join(hex("session-", &[WRITES_BETWEEN as u8]));
        assert_eq!(
            fs::metadata(&last).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let file = OpenOptions::new().write(true).open(&last).unwrap();
        file.set_modified(SystemTime::now() - STORED_LIFETIME - Duration::from_secs(1))
            .unwrap();
        assert_eq!(store.get(&[WRITES_BETWEEN as u8]), None);
        assert_eq!(
            StoresServerSessions::take(&store, &[WRITES_BETWEEN as u8]),
            None
        );
        assert!(
            !store.put(vec![0; 1000], vec![1]),
            "a key that makes no name"
        );
        assert_eq!(StoresServerSessions::take(&store, b"unknown"), None);
    }

    #[test]
    fn tokens_are_kept_by_server_the_newest_first() {
        let folder = Folder::new("ringloop-quic-store-tokens");
        let store = Directory::open(&folder.0).unwrap();
        for number in 0..STORED_TOKENS as u8 + 3 {
            store.insert("example.org", Bytes::from(vec![number; 60]));
            // Files of one moment have no order.
            let name = hex("token-", b"example.org") + "-" + &hex("", &[number; 8]);
            let file = OpenOptions::new()
                .write(true)
                .open(folder.0.join(name))
                .unwrap();
            let age = Duration::from_secs(100 - u64::from(number));
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        store.insert("example.com", Bytes::from_static(b"another"));
        let newest = STORED_TOKENS as u8 + 2;
        assert_eq!(
            TokenStore::take(&store, "example.org").unwrap(),
            vec![newest; 60]
        );
        let mut left = 0;
        while TokenStore::take(&store, "example.org").is_some() {
            left += 1;
        }
        assert_eq!(left, STORED_TOKENS - 1);
        assert_eq!(TokenStore::take(&store, "example.com").unwrap(), "another");
        assert!(TokenStore::take(&store, "example.com").is_none());
    }
}
