//! The machine's file system against plain memory: buffered, direct, batched, locked.

use super::*;
use crate::{MOST_ZEROS_AHEAD_BYTES, ReadRequest};
use proptest::prelude::*;
use std::io::ErrorKind;
use tempfile::TempDir;
use terrace_base::{Rng, SplitMix64};

/// Beside the test binary, where direct I/O usually works; temporary directories are often in
/// memory.
fn directory() -> TempDir {
    let binary = std::env::current_exe().unwrap();
    tempfile::tempdir_in(binary.parent().unwrap()).or_else(|_| tempfile::tempdir()).unwrap()
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it did not fail"),
    }
}

fn write(path: &Path, data: &[u8], direct: bool) {
    let options = CreateOptions { direct, ..Default::default() };
    let mut file = PosixVfs.create(path, &options).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
}

fn open(path: &Path, direct: bool) -> Arc<dyn RandomFile> {
    PosixVfs.open(path, OpenMode { direct, random: true }).unwrap()
}

/// On some file systems a reservation that fails for want of room has made the file longer.
#[test]
fn what_a_failed_reservation_leaves_is_cut_off() {
    let dir = directory();
    // Longer than any file may be.
    let options = CreateOptions { preallocate_bytes: u64::MAX, ..Default::default() };
    let path = dir.path().join("a");
    let (left, overlong) = create_new(&path, &options).unwrap();
    left.set_len(1 << 20).unwrap();
    let mut file = BufferedFile::new(left, &path, &options, overlong);
    file.append(b"all").unwrap();
    file.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"all");
}

#[test]
fn a_reservation_that_fails_holds_no_room() {
    let dir = directory();
    let file = File::create(dir.path().join("a")).unwrap();
    file::reserve(&file, || {
        file.set_len(1 << 20).unwrap();
        Err(Errno::NOSPC)
    });
    assert_eq!(file.metadata().unwrap().len(), 0);
    file::reserve(&file, || {
        file.set_len(1 << 20).unwrap();
        Ok(())
    });
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
}

/// A store that another process has open loses files all the time.
#[test]
fn what_is_removed_while_it_is_listed_is_not_there() {
    let dir = directory();
    let kind_of = |path: &Path| fs::symlink_metadata(path).map(|found| found.file_type());
    let path = dir.path().join("a");
    assert_eq!(is_dir(kind_of(&path)).unwrap(), None);
    fs::write(&path, "a").unwrap();
    assert_eq!(is_dir(kind_of(&path)).unwrap(), Some(false));
    assert_eq!(is_dir(kind_of(dir.path())).unwrap(), Some(true));
    let refused = is_dir(kind_of(&path.join("b"))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotADirectory);
}

/// To open one for reading would wait for a writer, who may never come.
#[test]
fn a_named_pipe_is_refused_without_a_wait() {
    let dir = directory();
    let path = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let refused = [
        PosixVfs.open(&path, OpenMode::default()).map(drop),
        PosixVfs.open(&path, OpenMode { direct: true, random: true }).map(drop),
        PosixVfs.sync_file(&path),
        PosixVfs.lock(&path).map(drop),
        PosixVfs.lock_shared(&path).map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("pipe") && error.contains("not a regular file"), "{error}");
    }
}

#[test]
fn what_is_no_file_is_told_from_what_cannot_be_opened() {
    // The names of sockets are short.
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("directory")).unwrap();
    std::os::unix::fs::symlink(path("directory"), path("link")).unwrap();
    std::os::unix::fs::symlink(path("circle"), path("circle")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let _listening = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let sim = crate::SimVfs::new(1);
    sim.create_dir_all(Path::new("/directory")).unwrap();
    let is_no_file = |vfs: &dyn Vfs, path: &Path| {
        crate::is_no_file(&vfs.open(path, OpenMode::default()).map(drop).unwrap_err())
    };
    for name in ["directory", "link", "circle", "pipe", "socket"] {
        assert!(is_no_file(&PosixVfs, &path(name)), "{name}");
    }
    assert!(is_no_file(&sim, Path::new("/directory")));
    assert!(!is_no_file(&PosixVfs, &path("nothing")));
    assert!(!is_no_file(&sim, Path::new("/nothing")));
}

/// A file cannot be created there.
#[test]
fn a_link_to_nothing_has_a_name_that_is_taken() {
    let dir = directory();
    let (link, other) = (dir.path().join("link"), dir.path().join("other"));
    std::os::unix::fs::symlink(dir.path().join("nothing"), &link).unwrap();
    assert!(PosixVfs.exists(&link).unwrap() && !PosixVfs.exists(&other).unwrap());
    assert!(PosixVfs.is_link(&link).unwrap() && !PosixVfs.is_link(&other).unwrap());
    assert!(!PosixVfs.is_link(dir.path()).unwrap());
    assert!(PosixVfs.create(&link, &CreateOptions::default()).is_err());
    PosixVfs.rename(&link, &other).unwrap();
    assert!(!PosixVfs.exists(&link).unwrap() && other.is_symlink());
    PosixVfs.remove(&other).unwrap();
    assert!(!PosixVfs.exists(&other).unwrap());
}

/// Some kernels fail reads of a ring from files with this flag, where the content is not in memory.
#[test]
fn open_files_are_read_with_waiting() {
    let dir = directory();
    let path = dir.path().join("a");
    fs::write(&path, b"content").unwrap();
    let (file, metadata) = open_existing(&path).unwrap();
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
    assert_eq!(metadata.len(), 7);
}

#[test]
fn direct_appends_of_odd_sizes_make_the_same_file() {
    let dir = directory();
    let data = noise(5_000_000, 1);
    for (direct, preallocate_bytes) in [(false, 0), (false, 8 << 20), (true, 0), (true, 1 << 20)] {
        let path = dir.path().join(format!("{direct}-{preallocate_bytes}"));
        let options = CreateOptions { direct, preallocate_bytes, ..Default::default() };
        let mut file = PosixVfs.create(&path, &options).unwrap();
        let mut rng = SplitMix64::new(2);
        let mut at = 0;
        while at < data.len() {
            let most = if rng.one_in(4) { 3_000_000 } else { 10_000 };
            let end = data.len().min(at + rng.below(most) as usize);
            file.append(&data[at..end]).unwrap();
            at = end;
            assert_eq!(file.len(), at as u64);
            if rng.one_in(20) {
                file.sync().unwrap();
                let on_disk = fs::read(&path).unwrap();
                assert!(on_disk.len() >= at && on_disk[..at] == data[..at]);
            }
        }
        file.finish().unwrap();
        file.finish().unwrap();
        assert!(fs::read(&path).unwrap() == data, "{path:?}");
        file.append(b"and on").unwrap();
        file.finish().unwrap();
        assert_eq!(PosixVfs.len(&path).unwrap(), data.len() as u64 + 6);
    }
}

#[test]
fn preallocated_room_is_zeros_until_finish() {
    let dir = directory();
    let path = dir.path().join("log");
    let options = CreateOptions { preallocate_bytes: 100_000, ..Default::default() };
    let mut file = PosixVfs.create(&path, &options).unwrap();
    file.append(b"record").unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"record") && bytes[6..].iter().all(|byte| *byte == 0));
    file.finish().unwrap();
    assert_eq!((PosixVfs.len(&path).unwrap(), file.len()), (6, 6));
}

#[test]
fn zeros_stand_ahead_of_short_appends_and_what_is_appended_takes_their_place() {
    let dir = directory();
    let data = noise(4_000_000, 5);
    let path = dir.path().join("log");
    let options = CreateOptions { zeros_ahead: true, grows: true, ..Default::default() };
    let mut file = PosixVfs.create(&path, &options).unwrap();
    let (mut rng, mut at, mut most_ahead) = (SplitMix64::new(6), 0, 0);
    while at < data.len() {
        let most = if rng.one_in(20) { 10_000 } else { 2_000 };
        let end = data.len().min(at + 1 + rng.below(most) as usize);
        file.append(&data[at..end]).unwrap();
        at = end;
        assert_eq!(file.len(), at as u64);
        if rng.one_in(8) {
            let on_disk = fs::read(&path).unwrap();
            assert!(on_disk[..at] == data[..at] && on_disk[at..].iter().all(|byte| *byte == 0));
            assert!(at as u64 >= MOST_ZEROS_AHEAD_BYTES || on_disk.len() == at, "short: {at}");
            most_ahead = most_ahead.max((on_disk.len() - at) as u64);
        }
        if rng.one_in(50) {
            file.finish().unwrap();
            assert_eq!(PosixVfs.len(&path).unwrap(), at as u64);
        }
    }
    assert!((1..MOST_ZEROS_AHEAD_BYTES).contains(&most_ahead), "{most_ahead}");
    let before = file.len();
    file.append(b"refused").unwrap();
    file.cut(before).unwrap();
    assert!(fs::read(&path).unwrap() == data);
}

/// A file that is sealed against growth stands for a full disk.
#[test]
fn where_zeros_find_no_room_what_is_appended_takes_the_last_of_it() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let sealed = memfd_create("log", MemfdFlags::ALLOW_SEALING).unwrap();
    let room = 3 * MOST_ZEROS_AHEAD_BYTES + 1_000;
    ftruncate(&sealed, room).unwrap();
    fcntl_add_seals(&sealed, SealFlags::GROW).unwrap();
    let options = CreateOptions { zeros_ahead: true, ..Default::default() };
    let mut file = BufferedFile::new(File::from(sealed), Path::new("log"), &options, true);
    let data = noise(room as usize, 7);
    for piece in data.chunks(500) {
        file.append(piece).unwrap();
    }
    assert_eq!(file.len(), room);
    file.append(b"more").unwrap_err();
}

#[test]
fn direct_reads_at_odd_places_agree_with_memory() {
    let dir = directory();
    let path = dir.path().join("f");
    let data = noise(3_000_001, 3);
    write(&path, &data, true);
    let mut buf = vec![0; data.len() + 10];
    for direct in [true, false] {
        let file = open(&path, direct);
        assert_eq!(file.len(), data.len() as u64);
        let mut rng = SplitMix64::new(4);
        let mut places: Vec<(usize, usize)> = (0..200)
            .map(|_| (rng.below(3_000_001) as usize, rng.below(20_000) as usize))
            .map(|(at, len)| (at, len.min(data.len() - at)))
            .collect();
        places.extend([
            (0, data.len()),
            (1, data.len() - 1),
            (0, 4096),
            (4096, 8192),
            (3_000_001, 0),
        ]);
        for (at, len) in places {
            file.read_at(at as u64, &mut buf[3..3 + len]).unwrap();
            assert!(buf[3..3 + len] == data[at..at + len], "{at} {len}");
        }
        for (at, len) in
            [(3_000_001, 1), (2_999_999, 3), (0, 3_000_002), (u64::MAX, 1), (1 << 40, 5)]
        {
            assert_eq!(kind(file.read_at(at, &mut buf[..len])), ErrorKind::UnexpectedEof);
        }
        file.advise_willneed(0, 1 << 20);
    }
}

#[test]
fn a_batch_gives_what_plain_reads_give() {
    let dir = directory();
    let data = noise(2_000_000, 5);
    let path = dir.path().join("f");
    write(&path, &data, false);
    let sim = crate::SimVfs::new(0);
    sim.write_file("f", &data);
    let simulated = sim.open(Path::new("f"), OpenMode::default()).unwrap();
    let files = [open(&path, false), open(&path, true), simulated];
    let mut rng = SplitMix64::new(6);
    for count in [0, 1, 2, 63, 64, 65, 300, 1000] {
        // Some requests are past the end, empty, or larger than the ring takes.
        let places: Vec<(usize, u64, usize)> = (0..count)
            .map(|_| {
                let offset = rng.below(2_010_000);
                let len = match rng.below(20) {
                    0 => 0,
                    1 => 600_000,
                    2 => 1_100_000,
                    _ => rng.below(9000) as usize,
                };
                (rng.below(3) as usize, offset, len)
            })
            .collect();
        let mut bufs: Vec<Vec<u8>> = places.iter().map(|(_, _, len)| vec![0; *len]).collect();
        let mut requests: Vec<ReadRequest<'_>> = places
            .iter()
            .zip(&mut bufs)
            .map(|((file, offset, _), buf)| ReadRequest::new(&*files[*file], *offset, buf))
            .collect();
        PosixVfs.read_batch(&mut requests);
        let results: Vec<_> = requests.into_iter().map(|request| request.result.unwrap()).collect();
        for (((_, offset, len), buf), result) in places.iter().zip(&bufs).zip(results) {
            match data.get(*offset as usize..*offset as usize + len) {
                Some(want) => {
                    result.unwrap();
                    assert!(want == buf, "{offset} {len}");
                }
                None if *len == 0 => {}
                None => assert_eq!(kind(result), ErrorKind::UnexpectedEof),
            }
        }
    }
}

#[test]
fn batches_run_on_many_threads() {
    let dir = directory();
    let data = noise(1 << 20, 7);
    let path = dir.path().join("f");
    write(&path, &data, false);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (path, data) = (&path, &data);
            scope.spawn(move || {
                let file = open(path, thread % 2 == 0);
                let mut rng = SplitMix64::new(thread);
                for _ in 0..50 {
                    let offsets: Vec<u64> = (0..40).map(|_| rng.below((1 << 20) - 4000)).collect();
                    let mut bufs = vec![vec![0; 4000]; 40];
                    let mut requests: Vec<_> = offsets
                        .iter()
                        .zip(&mut bufs)
                        .map(|(offset, buf)| ReadRequest::new(&*file, *offset, buf))
                        .collect();
                    PosixVfs.read_batch(&mut requests);
                    assert!(requests.iter().all(|request| matches!(request.result, Some(Ok(())))));
                    for (offset, buf) in offsets.iter().zip(&bufs) {
                        assert!(data[*offset as usize..][..4000] == buf[..]);
                    }
                }
            });
        }
    });
}

#[test]
fn a_lock_is_exclusive_until_dropped() {
    let dir = directory();
    let path = dir.path().join("LOCK");
    let lock = PosixVfs.lock(&path).unwrap();
    assert_eq!(kind(PosixVfs.lock(&path)), ErrorKind::WouldBlock);
    let same_file: PathBuf = dir.path().join(".").join("LOCK");
    assert_eq!(kind(PosixVfs.lock(&same_file)), ErrorKind::WouldBlock);
    drop(lock);
    let again = PosixVfs.lock(&path).unwrap();
    let status = std::process::Command::new("flock")
        .args(["--nonblock".as_ref(), path.as_os_str(), "true".as_ref()])
        .status();
    // The lock holds against another process, where there is such a program to try with.
    assert!(status.is_err() || !status.unwrap().success());
    drop(again);
}

#[test]
fn shared_locks_are_held_together_but_not_beside_the_exclusive_one() {
    let dir = directory();
    let path = dir.path().join("READERS");
    assert_eq!(kind(PosixVfs.lock_shared(&path)), ErrorKind::NotFound);
    write(&path, b"", false);
    let (one, two) = (PosixVfs.lock_shared(&path).unwrap(), PosixVfs.lock_shared(&path).unwrap());
    assert_eq!(kind(PosixVfs.lock(&path)), ErrorKind::WouldBlock);
    drop(one);
    assert_eq!(kind(PosixVfs.lock(&path)), ErrorKind::WouldBlock, "one is left");
    drop(two);
    let exclusive = PosixVfs.lock(&path).unwrap();
    assert_eq!(kind(PosixVfs.lock_shared(&path)), ErrorKind::WouldBlock);
    drop(exclusive);
    assert!(PosixVfs.lock_shared(&path).is_ok());
}

/// As the simulated file system does; `File exists` does not say what is wrong.
#[test]
fn what_is_no_directory_is_named_where_one_is_to_be_made() {
    let dir = directory();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    write(&file, b"mine", false);
    std::os::unix::fs::symlink(dir.path().join("nothing"), &link).unwrap();
    for (wanted, named) in [(&file, &file), (&file.join("a/b"), &file), (&link, &link)] {
        let refused = PosixVfs.create_dir_all(wanted);
        let said = refused.as_ref().unwrap_err().to_string();
        assert!(said.starts_with(&format!("create directory {}: ", named.display())), "{said}");
        assert!(said.contains("is no directory") && said.contains("move it away"), "{said}");
        assert_eq!(kind(refused), ErrorKind::NotADirectory);
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

/// A link to itself; one to where this process may not look is met in the same way.
#[test]
fn of_what_cannot_be_looked_at_nobody_says_that_it_is_no_directory() {
    let dir = directory();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let looked = fs::metadata(&link).unwrap_err();
    let said = PosixVfs.create_dir_all(&link).unwrap_err().to_string();
    assert_eq!(said, format!("create directory {}: {looked}", link.display()));
}

#[test]
fn names_come_and_go() {
    let dir = directory();
    let deep = dir.path().join("a/b/c");
    PosixVfs.create_dir_all(&deep).unwrap();
    PosixVfs.create_dir_all(&deep).unwrap();
    let (one, two) = (deep.join("1"), deep.join("2"));
    assert_eq!(kind(open_missing(&one)), ErrorKind::NotFound);
    write(&one, b"1", false);
    assert_eq!(kind(PosixVfs.create(&one, &CreateOptions::default())), ErrorKind::AlreadyExists);
    PosixVfs.hard_link(&one, &two).unwrap();
    assert_eq!(kind(PosixVfs.hard_link(&one, &two)), ErrorKind::AlreadyExists);
    PosixVfs.rename(&two, &deep.join("3")).unwrap();
    PosixVfs.remove(&one).unwrap();
    PosixVfs.sync_dir(&deep).unwrap();
    assert_eq!(PosixVfs.list(&deep).unwrap(), ["3"]);
    assert!(PosixVfs.list(&dir.path().join("a")).unwrap().is_empty(), "files only");
    assert!(!PosixVfs.exists(&two).unwrap() && PosixVfs.exists(&deep).unwrap());
    assert!(PosixVfs.remove(&deep).is_err());
    PosixVfs.remove(&deep.join("3")).unwrap();
    PosixVfs.remove(&deep).unwrap();
    assert!(PosixVfs.free_space_bytes(dir.path()).unwrap() > 0);
    assert!(PosixVfs.free_space_bytes(&deep).is_err());
    assert!(open_file_limit() >= 64);
    let before = crate::io_counters();
    write(&dir.path().join("counted"), b"12345", false);
    let after = crate::io_counters();
    assert!(after.writes > before.writes && after.syncs > before.syncs);
    assert!(after.write_bytes >= before.write_bytes + 5);
}

fn open_missing(path: &Path) -> Result<Arc<dyn RandomFile>> {
    PosixVfs.open(path, OpenMode::default())
}

#[test]
fn a_failed_append_reports_and_a_removed_file_stays_readable() {
    for direct in [false, true] {
        let device = File::options().write(true).open("/dev/full").unwrap();
        let path = Path::new("/dev/full");
        let mut file: Box<dyn AppendFile> = match direct {
            false => Box::new(BufferedFile::new(device, path, &CreateOptions::default(), false)),
            true => Box::new(DirectFile::new(device, path, false)),
        };
        let error = file.append(b"x").and_then(|()| file.finish()).unwrap_err();
        assert!(error.is_no_space() && error.to_string().contains("/dev/full"), "{error}");
        assert_eq!(file.len(), u64::from(direct));
        assert!(file.append(b"x").is_err(), "still full, or finished for ever");
    }
    let dir = directory();
    let path = dir.path().join("f");
    write(&path, b"content", false);
    let file = open(&path, true);
    PosixVfs.remove(&path).unwrap();
    let mut buf = [0; 7];
    file.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"content");
    assert_eq!(kind(PosixVfs.open(dir.path(), OpenMode::default())), ErrorKind::IsADirectory);
}

#[test]
fn a_cut_ends_a_file_where_it_was_before_an_append() {
    let dir = directory();
    let data = noise(3 << 20, 5);
    for direct in [false, true] {
        for (first, second) in [(100, 50), (100, 9000), (5000, 100), (2 << 20, 1000), (10, 2 << 20)]
        {
            for len in [first, first + second] {
                let path = dir.path().join(format!("{direct}-{first}-{second}-{len}"));
                let options =
                    CreateOptions { direct, preallocate_bytes: 1 << 16, ..Default::default() };
                let mut file = PosixVfs.create(&path, &options).unwrap();
                file.append(&data[..first]).unwrap();
                file.append(&data[first..first + second]).unwrap();
                assert_eq!(kind(file.cut((first + second) as u64 + 1)), ErrorKind::InvalidInput);
                file.cut(len as u64).unwrap();
                assert_eq!(file.len(), len as u64);
                assert!(fs::read(&path).unwrap() == data[..len], "{direct} {first} {second} {len}");
                file.sync().unwrap();
                file.finish().unwrap();
                assert!(fs::read(&path).unwrap() == data[..len], "{direct} {first} {second} {len}");
            }
        }
    }
}

#[test]
fn a_file_is_synced_by_its_name_whether_or_not_it_is_open_for_appending() {
    let dir = directory();
    let path = dir.path().join("f");
    assert_eq!(kind(PosixVfs.sync_file(&path)), ErrorKind::NotFound);
    let mut file = PosixVfs.create(&path, &CreateOptions::default()).unwrap();
    file.append(b"content").unwrap();
    let before = crate::io_counters().syncs;
    PosixVfs.sync_file(&path).unwrap();
    assert!(crate::io_counters().syncs > before);
    file.append(b" and more").unwrap();
    drop(file);
    PosixVfs.sync_file(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"content and more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn direct_and_buffered_files_agree(
        parts in proptest::collection::vec((0usize..9000, prop::bool::weighted(0.2)), 1..8),
    ) {
        let dir = directory();
        let paths = [dir.path().join("buffered"), dir.path().join("direct")];
        for (path, direct) in paths.iter().zip([false, true]) {
            let options = CreateOptions { direct, ..Default::default() };
            let mut file = PosixVfs.create(path, &options).unwrap();
            for (seed, (len, sync)) in parts.iter().enumerate() {
                file.append(&noise(*len, seed as u64)).unwrap();
                if *sync {
                    file.sync().unwrap();
                }
            }
            file.finish().unwrap();
        }
        prop_assert!(fs::read(&paths[0]).unwrap() == fs::read(&paths[1]).unwrap());
    }
}

#[test]
fn a_file_can_be_synced_beside_who_appends_until_a_sync_fails() {
    let dir = directory();
    let mut file = PosixVfs.create(&dir.path().join("f"), &CreateOptions::default()).unwrap();
    let handle = file.sync_handle().unwrap();
    file.append(b"content").unwrap();
    handle.sync().unwrap();
    drop(file);
    handle.sync().unwrap();
    // No device that can be synced.
    let (path, options) = (Path::new("/dev/null"), CreateOptions::default());
    let device = File::options().write(true).open(path).unwrap();
    let mut file = BufferedFile::new(device, path, &options, false);
    let handle = file.sync_handle().unwrap();
    file.append(b"content").unwrap();
    let error = handle.sync().unwrap_err();
    assert!(error.is_failed_sync() && error.to_string().contains("/dev/null"), "{error}");
    assert!(handle.sync().is_err() && file.sync().is_err() && file.append(b"x").is_err());
}
