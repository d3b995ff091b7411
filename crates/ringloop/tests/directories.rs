//! Calls that the ring has no operation for (`fs::read_dir`, `copy`, `remove_dir_all` …), with the
//! results of `std` asserted on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::fs::{self, File};
use ringloop::spawn;
use ringloop_testing::engine::in_directories;
use std::collections::BTreeSet;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn every_entry_is_listed_once_with_its_type() {
    in_directories("listed", |dir| async move {
        let count = limits::DIRECTORY_ENTRIES * 2 + 3;
        let mut expected = BTreeSet::new();
        for n in 0..count {
            std::fs::write(dir.join(format!("file {n}")), b"x").unwrap();
            expected.insert(format!("file {n}"));
        }
        let mut found = BTreeSet::new();
        let mut entries = fs::read_dir(&dir).await.unwrap();
        while let Some(entry) = entries.next().await {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            assert_eq!(entry.path(), dir.join(&name));
            assert!(entry.file_type().unwrap().is_file());
            assert!(found.insert(name), "listed twice");
        }
        assert_eq!(found, expected);
        assert!(entries.next().await.is_none(), "the end stays the end");
    });
}

#[test]
fn types_and_metadata_of_entries_are_their_own_not_their_targets() {
    in_directories("types", |dir| async move {
        std::fs::create_dir(dir.join("dir")).unwrap();
        std::fs::write(dir.join("file"), b"12345").unwrap();
        symlink("dir", dir.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        let mut entries = fs::read_dir(&dir).await.unwrap();
        let mut count = 0;
        while let Some(entry) = entries.next().await {
            let entry = entry.unwrap();
            let (of, found) = (entry.file_type().unwrap(), entry.metadata().await.unwrap());
            assert_eq!(found.file_type(), of);
            assert_eq!(found.ino(), entry.ino());
            match entry.file_name().to_str().unwrap() {
                "dir" => assert!(of.is_dir()),
                "file" => assert!(of.is_file() && found.len() == 5),
                "link" => assert!(of.is_symlink()),
                "socket" => assert!(of.is_socket()),
                other => panic!("{other}"),
            }
            count += 1;
        }
        assert_eq!(count, 4);
        assert_eq!(kind(fs::read_dir(dir.join("none")).await), ErrorKind::NotFound);
        assert_eq!(kind(fs::read_dir(dir.join("file")).await), ErrorKind::NotADirectory);
    });
}

#[test]
fn entry_of_a_dropped_call_goes_to_the_next() {
    in_directories("given-up", |dir| async move {
        std::fs::write(dir.join("only"), b"").unwrap();
        let mut entries = fs::read_dir(&dir).await.unwrap();
        let polled = pin!(entries.next()).poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Pending => {
                let entry = entries.next().await.unwrap().unwrap();
                assert_eq!(entry.file_name(), "only");
            }
            // The thread was faster than the poll.
            Poll::Ready(entry) => assert_eq!(entry.unwrap().unwrap().file_name(), "only"),
        }
        assert!(entries.next().await.is_none());
        // Dropped during a read: its directory is closed (the descriptors are counted).
        let mut entries = fs::read_dir(&dir).await.unwrap();
        drop(pin!(entries.next()).poll(&mut Context::from_waker(Waker::noop())));
        drop(entries);
    });
}

#[test]
fn copy_is_that_of_std() {
    in_directories("copy", |dir| async move {
        let (from, to) = (dir.join("from"), dir.join("to"));
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        std::fs::write(&to, vec![0; 4_000_000]).unwrap();
        std::fs::set_permissions(&from, PermissionsExt::from_mode(0o640)).unwrap();
        assert_eq!(fs::copy(&from, &to).await.unwrap(), 3_000_000);
        assert!(std::fs::read(&to).unwrap() == bytes, "cut and overwritten");
        let mode = std::fs::metadata(&to).unwrap().mode();
        assert_eq!(mode & 0o777, 0o640, "also of one that was there");
        let link = dir.join("link");
        symlink(&from, &link).unwrap();
        assert_eq!(fs::copy(&link, dir.join("of link")).await.unwrap(), 3_000_000);
        assert_eq!(kind(fs::copy(&dir, &to).await), ErrorKind::InvalidInput);
        let none = dir.join("none");
        assert_eq!(kind(fs::copy(&none, &to).await), ErrorKind::NotFound);
        assert!(std::fs::read(&to).unwrap() == bytes, "left as it was");
        let below = from.join("below");
        assert_eq!(kind(fs::copy(&from, &below).await), ErrorKind::NotADirectory);
        // A file that reports size 0.
        assert!(fs::copy("/proc/self/status", &to).await.unwrap() > 0);
    });
}

#[test]
fn trees_are_removed_and_what_their_links_name_stays() {
    in_directories("trees", |dir| async move {
        let (tree, outside) = (dir.join("tree"), dir.join("outside"));
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), b"").unwrap();
        std::fs::write(tree.join("a/file"), b"").unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        fs::remove_dir_all(&tree).await.unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        assert_eq!(kind(fs::remove_dir_all(&tree).await), ErrorKind::NotFound);
        let file = outside.join("kept");
        assert_eq!(kind(fs::remove_dir_all(&file).await), ErrorKind::NotADirectory);
        // A link instead of the tree: the link is removed.
        symlink(&outside, &tree).unwrap();
        fs::remove_dir_all(&tree).await.unwrap();
        assert!(!tree.is_symlink() && file.exists());
    });
}

/// A swapper replaces a directory with a link, repeatedly, while the tree is being removed.
#[test]
fn link_that_replaces_a_directory_does_not_lead_out_of_the_tree() {
    in_directories("race", |dir| async move {
        let outside = dir.join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), b"").unwrap();
        for _ in 0..50 {
            let tree = dir.join("tree");
            std::fs::create_dir_all(tree.join("victim")).unwrap();
            std::fs::write(tree.join("victim/file"), b"").unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let swapper = {
                let (over, tree, outside) = (over.clone(), tree.clone(), outside.clone());
                std::thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        swap(&tree, &outside);
                    }
                })
            };
            // Any result but a missing file outside: the swapper may win, or fill it again.
            drop(fs::remove_dir_all(&tree).await);
            over.store(true, Ordering::Relaxed);
            swapper.join().unwrap();
            assert!(outside.join("kept").exists(), "removed through a link");
            drop(std::fs::remove_dir_all(&tree));
        }
    });
}

fn swap(tree: &Path, outside: &Path) {
    let (victim, aside) = (tree.join("victim"), tree.join("aside"));
    drop(std::fs::rename(&victim, &aside));
    drop(symlink(outside, &victim));
    drop(std::fs::remove_file(&victim));
    drop(std::fs::rename(&aside, &victim));
}

#[test]
fn names_are_resolved_as_std_does() {
    in_directories("resolved", |dir| async move {
        let dir = std::fs::canonicalize(dir).unwrap();
        std::fs::create_dir(dir.join("a")).unwrap();
        symlink("a", dir.join("link")).unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
        let crooked = dir.join("a/../link/.");
        assert_eq!(fs::canonicalize(&crooked).await.unwrap(), dir.join("a"));
        assert_eq!(fs::read_link(dir.join("link")).await.unwrap(), Path::new("a"));
        assert_eq!(kind(fs::read_link(dir.join("a")).await), ErrorKind::InvalidInput);
        let dangling = dir.join("dangling");
        assert_eq!(kind(fs::canonicalize(&dangling).await), ErrorKind::NotFound);
        assert!(fs::try_exists(dir.join("link")).await.unwrap());
        assert!(!fs::try_exists(&dangling).await.unwrap());
        assert!(!fs::try_exists(dir.join("none")).await.unwrap());
        // An unknown answer is not `false`: here a name below a file.
        std::fs::write(dir.join("file"), b"").unwrap();
        let below = dir.join("file/x");
        let theirs = std::fs::exists(&below).map_err(|error| error.kind());
        let ours = fs::try_exists(&below).await.map_err(|error| error.kind());
        assert_eq!(ours, theirs);
        for name in ["a\0b", "x/\0"] {
            assert_eq!(kind(fs::canonicalize(name).await), ErrorKind::InvalidInput);
            assert_eq!(kind(fs::try_exists(name).await), ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn permissions_are_set_by_name_and_by_file() {
    in_directories("permissions", |dir| async move {
        let path = dir.join("file");
        std::fs::write(&path, b"").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).await.unwrap();
        assert_eq!(mode(), 0o600);
        let file = File::open(&path).await.unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o444)).await.unwrap();
        assert_eq!(mode(), 0o444);
        let mut found = file.metadata().await.unwrap().permissions();
        assert!(found.readonly());
        #[allow(clippy::permissions_set_readonly_false)]
        found.set_readonly(false);
        fs::set_permissions(&path, found).await.unwrap();
        assert_eq!(mode(), 0o666);
        let none = fs::set_permissions(dir.join("none"), PermissionsExt::from_mode(0o600));
        assert_eq!(kind(none.await), ErrorKind::NotFound);
    });
}

#[test]
fn tasks_make_one_tree_at_once() {
    in_directories("at-once", |dir| async move {
        let deep = dir.join("a/b/c/d");
        let makers: Vec<_> =
            (0..32).map(|n| spawn(fs::create_dir_all(deep.join(format!("{}", n % 4))))).collect();
        for maker in makers {
            maker.await.unwrap().unwrap();
        }
        let mut entries = fs::read_dir(&deep).await.unwrap();
        let mut count = 0;
        while let Some(entry) = entries.next().await {
            assert!(entry.unwrap().file_type().unwrap().is_dir());
            count += 1;
        }
        assert_eq!(count, 4);
    });
}
